/** Stock chats that continue a message: whatever they have of it, they end with what is stored. */
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { ChatClient, within } from "./chat-client.ts";
import { HttpSession, newSessionId } from "./service.ts";
import { textOf } from "./socket.ts";
import { toolRuns } from "./tool-runs.ts";

/** As JSON: there is no `undefined` in it. */
const plain = (messages: UIMessage[]): UIMessage[] => JSON.parse(JSON.stringify(messages));

const callIds = (message: UIMessage | undefined): string[] =>
  message?.parts.flatMap((part) => ("toolCallId" in part ? [part.toolCallId] : [])) ?? [];

async function asked(topic: string, text: string) {
  const id = newSessionId(topic);
  const http = new HttpSession("tools", id);
  const chat = new ChatClient("tools", id);
  await within("the calls", chat.sendMessage({ text }), chat);
  return { id, http, chat, calls: callIds(chat.lastMessage) };
}

/** Another page of the same session, with the messages it has. */
const tab = (id: string, messages: UIMessage[]) => new ChatClient("tools", id, { messages: structuredClone(messages) });

async function answer(chat: ChatClient, toolCallId: string | undefined, output: unknown): Promise<void> {
  await chat.addToolOutput({ tool: "locate", toolCallId: toolCallId ?? "", output });
}

async function send(chat: ChatClient): Promise<void> {
  await within("the end of the message", chat.sendMessage(), chat);
  expect(chat.error).toBe(undefined);
}

describe("a chat that continues a message", () => {
  it("[TN29] with one of two outputs keeps both calls once, and goes on with the other", async () => {
    const { http, chat, calls } = await asked("one-of-two", "/call locate\n/call locate\n/then\n/words 3");
    for (const call of calls) {
      await answer(chat, call, { city: "Porto" });
      await send(chat);
      expect(plain(chat.messages)).toEqual(await http.messages());
    }
    expect(callIds(chat.lastMessage)).toEqual(calls);
    expect(textOf(chat.lastMessage).split(" ")).toHaveLength(3);
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it("[TN29] with outputs that were sent before is sent the steps it lacks, and nothing twice", async () => {
    const { id, http, chat, calls } = await asked("sent-again", "/words 2\n/call locate\n/then\n/words 3");
    await answer(chat, calls[0], "here");
    const copy = structuredClone(chat.messages);
    await send(chat);
    const stored = await http.messages();
    expect(plain(chat.messages)).toEqual(stored);
    for (const messages of [copy, stored]) {
      const reloaded = tab(id, messages);
      await send(reloaded);
      expect(plain(reloaded.messages)).toEqual(stored);
    }
    expect(await http.messages()).toEqual(stored);
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it.each(["at once", "one after the other"])(
    "[TN29] beside another that answers the same call %s ends with the answer that was taken",
    async (when) => {
      const { id, http, chat, calls } = await asked("two-tabs", "/words 2\n/call locate\n/then\n/words 6\n/slow 10");
      const other = tab(id, chat.messages);
      await answer(chat, calls[0], "Porto");
      await answer(other, calls[0], "Lisbon");
      if (when === "at once") await Promise.all([send(chat), send(other)]);
      else {
        await send(chat);
        await send(other);
      }
      const stored = await http.messages();
      expect(stored[1]?.parts.filter((part) => "toolCallId" in part)).toMatchObject([{ output: "Porto" }]);
      expect(plain(chat.messages)).toEqual(stored);
      expect(plain(other.messages)).toEqual(stored);
      expect((await http.summary()).usage.calls).toBe(2);
    },
  );

  it("[TN29] is told what another decided on a call of the same message", async () => {
    const { id, http, chat, calls } = await asked(
      "decided-elsewhere",
      '/call refund {"amount":9}\n/call locate\n/then\n/words 3',
    );
    const other = tab(id, chat.messages);
    const part = chat.lastMessage?.parts.find((candidate) => candidate.type === "tool-refund");
    const approval = part && "approval" in part ? part.approval?.id : undefined;
    await chat.addToolApprovalResponse({ id: approval ?? "", approved: true, reason: "fine" });
    await send(chat);
    await answer(other, calls[1], "here");
    await send(other);
    const stored = await http.messages();
    expect(toolRuns(id)).toEqual(["refund"]);
    expect(plain(other.messages)).toEqual(stored);
    expect(textOf(stored[1]).split(" ")).toHaveLength(3);
  });

  it("[TN29] is told what another answered to the other call of the same step", async () => {
    const { id, http, chat, calls } = await asked("answered-elsewhere", "/call locate\n/call locate\n/then\n/words 3");
    const other = tab(id, chat.messages);
    await answer(chat, calls[0], "Porto");
    await send(chat);
    await answer(other, calls[1], "Lisbon");
    await send(other);
    const stored = await http.messages();
    expect(stored[1]?.parts.filter((part) => "toolCallId" in part)).toMatchObject([
      { output: "Porto" },
      { output: "Lisbon" },
    ]);
    expect(plain(other.messages)).toEqual(stored);
  });
});
