/** A deployed session in which two things were said and answered, under the ids `u-1` and `u-2`. */
import { HttpSession, newSessionId } from "./service.ts";
import { openSocket, type Socket } from "./socket.ts";

export async function conversation(topic: string): Promise<{ id: string; http: HttpSession; socket: Socket }> {
  const id = newSessionId(topic);
  const http = new HttpSession("chat", id);
  const socket = await openSocket("chat", id);
  await socket.ask("/words 3", { id: "u-1" });
  await socket.ask("/words 4", { id: "u-2" });
  return { id, http, socket };
}
