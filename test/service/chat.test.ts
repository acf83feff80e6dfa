/** What an application sees: the AI SDK's chat over its own WebSocket transport. */
import { evictDurableObject } from "cloudflare:test";
import { lastAssistantMessageIsCompleteWithToolCalls, type UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { ChatClient, within } from "./chat-client.ts";
import { eventually, HttpSession, newSessionId, stubOf } from "./service.ts";
import { textOf } from "./socket.ts";
import { toolRuns } from "./tool-runs.ts";

const partTypes = (message: UIMessage | undefined) => message?.parts.map((part) => part.type);
const words = (message: UIMessage | undefined) => textOf(message).split(" ").filter(Boolean).length;

/** What is stored, as the client holds it: JSON has no `undefined`. */
const plain = (messages: UIMessage[]): UIMessage[] => JSON.parse(JSON.stringify(messages));

/** As JSON with the keys of every object in order, so that equal means equal to the byte. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

async function streaming(chat: ChatClient, atLeast: number): Promise<void> {
  await eventually(
    "some words",
    () => words(chat.lastMessage),
    (count) => count >= atLeast,
  );
}

describe("the stock chat", () => {
  it("[WP2][US2] sends, streams, and ends with the messages that are stored, usage included", async () => {
    const id = newSessionId("chat");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    await within("the first answer", chat.sendMessage({ text: "hello there" }), chat);
    await within("the second", chat.sendMessage({ text: "/reason because\n/words 3" }), chat);
    expect([chat.status, chat.error]).toEqual(["ready", undefined]);
    expect(partTypes(chat.messages[3])).toEqual(["step-start", "reasoning", "text"]);
    const stored = await http.messages();
    expect(plain(chat.messages)).toEqual(stored);
    const usage = {
      inputTokens: 66,
      inputTokenDetails: { noCacheTokens: 57, cacheReadTokens: 9, cacheWriteTokens: 0 },
      outputTokens: 6,
      outputTokenDetails: { textTokens: 4, reasoningTokens: 2 },
      totalTokens: 72,
    };
    expect(stored[3]?.metadata).toEqual({ usage, totalUsage: usage, steps: [usage], model: "mirror" });
  });

  it("[WP2][TN7] regenerates: the client and the session agree on the new answer", async () => {
    const id = newSessionId("chat-regenerate");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    await within("an answer", chat.sendMessage({ text: "one" }), chat);
    const first = chat.lastMessage?.id;
    await within("another", chat.regenerate(), chat);
    expect(chat.lastMessage?.id === first).toBe(false);
    expect(plain(chat.messages)).toEqual(await http.messages());
    expect((await http.branches()).map(({ messages }) => messages)).toEqual([2, 2]);
  });

  it("[WP2][TN6] edits an earlier message: the client and the session agree on the new branch", async () => {
    const id = newSessionId("chat-edit");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    await within("an answer", chat.sendMessage({ text: "one" }), chat);
    await within("a second", chat.sendMessage({ text: "two" }), chat);
    const messageId = chat.messages[0]?.id ?? "";
    await within("the edit", chat.sendMessage({ text: "uno", messageId }), chat);
    expect(chat.messages).toHaveLength(2);
    expect(plain(chat.messages)).toEqual(await http.messages());
    await within("what follows", chat.sendMessage({ text: "due" }), chat);
    expect(textOf(chat.lastMessage)).toContain('I was shown 3 messages (no summary). First: "uno"');
  });

  it("[TN4][TN6] an edit that changes nothing is answered anew where the conversation had gone on", async () => {
    const id = newSessionId("chat-same-edit");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    await within("an answer", chat.sendMessage({ text: "one" }), chat);
    await within("a second", chat.sendMessage({ text: "two" }), chat);
    const messageId = chat.messages[0]?.id ?? "";
    await within("the edit", chat.sendMessage({ text: "one", messageId }), chat);
    expect(plain(chat.messages)).toEqual(await http.messages());
    expect((await http.branches()).map(({ messages }) => messages)).toEqual([2, 4]);
  });

  it("[WP2][WP3] a connection that breaks mid-stream is resumed to the same message, byte for byte", async () => {
    const id = newSessionId("chat-resume");
    const chat = new ChatClient("chat", id);
    const sent = chat.sendMessage({ text: "/reason let me think\n/words 40\n/slow 10" });
    await streaming(chat, 5);
    chat.dropConnection();
    await within("the break", sent, chat);
    expect(chat.status).toBe("error");
    await within("the rest", chat.resumeStream(), chat);
    const [, stored] = await new HttpSession("chat", id).messages();
    expect(sorted(chat.lastMessage)).toBe(sorted(stored));
    expect([words(chat.lastMessage), chat.messages.length]).toEqual([40, 2]);
  });

  it("[WP2][WP3] a page that opens while a turn runs resumes it behind the history it loaded", async () => {
    const id = newSessionId("chat-reload");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    const sent = chat.sendMessage({ text: "/words 30\n/slow 10" });
    await streaming(chat, 3);
    const reloaded = new ChatClient("chat", id, { messages: (await http.messages()).slice(0, 1) });
    await within("the resume", reloaded.resumeStream(), reloaded);
    await within("the answer", sent, chat);
    expect(plain(reloaded.messages)).toEqual(plain(chat.messages));
  });

  it("[WP4] a resume of an idle session leaves the chat ready", async () => {
    const chat = new ChatClient("chat", newSessionId("chat-idle"));
    await within("the answer", chat.resumeStream(), chat);
    expect([chat.status, chat.messages]).toEqual(["ready", []]);
  });

  it("[TN19][WP5] stop keeps what had arrived, in the client and in the session, and the next turn works", async () => {
    const id = newSessionId("chat-stop");
    const http = new HttpSession("chat", id);
    const chat = new ChatClient("chat", id);
    const sent = chat.sendMessage({ text: "/words 20\n/stall" });
    await streaming(chat, 10);
    await chat.stop();
    await within("the end", sent, chat);
    await eventually(
      "the turn to stop",
      () => http.summary(),
      ({ turn }) => turn === null,
    );
    expect(textOf((await http.messages())[1])).toBe(textOf(chat.lastMessage));
    await within("the next", chat.sendMessage({ text: "/words 2" }), chat);
    expect(words(chat.lastMessage)).toBe(2);
    expect((await http.usage()).records.map(({ finishReason }) => finishReason)).toEqual(["stop", "aborted"]);
  });

  it("[TN18][WP9] a failed turn shows the error with its code, and the next turn works", async () => {
    const id = newSessionId("chat-fail");
    const chat = new ChatClient("chat", id);
    await within("the failure", chat.sendMessage({ text: "/words 6\n/fail during" }), chat);
    expect([chat.status, chat.error?.message]).toEqual([
      "error",
      "model-failed: The model failed: mirror broke the stream, as it was told to.",
    ]);
    await within("the next", chat.sendMessage({ text: "/words 2" }), chat);
    expect([chat.status, words(chat.lastMessage)]).toEqual(["ready", 2]);
    expect(await new HttpSession("chat", id).messages()).toHaveLength(4);
  });

  it("[ST7][TN1] goes on after an eviction, on the same socket, as if nothing had happened", async () => {
    const id = newSessionId("chat-evicted");
    const chat = new ChatClient("chat", id);
    await within("an answer", chat.sendMessage({ text: "one" }), chat);
    await evictDurableObject(stubOf("chat", id));
    await within("a second", chat.sendMessage({ text: "two" }), chat);
    expect(textOf(chat.lastMessage)).toContain("I was shown 3 messages");
    expect(plain(chat.messages)).toEqual(await new HttpSession("chat", id).messages());
  });

  it("[TN5] messages sent while a turn runs wait, and every client ends with the stored conversation", async () => {
    const id = newSessionId("chat-queue");
    const [first, second] = [new ChatClient("chat", id), new ChatClient("chat", id)];
    const one = first.sendMessage({ text: "one\n/words 20\n/slow 10" });
    await streaming(first, 2);
    const two = second.sendMessage({ text: "two" });
    await within("both", Promise.all([one, two]), second);
    expect(textOf(second.lastMessage)).toContain("I was shown 3 messages");
    const stored = await new HttpSession("chat", id).messages();
    expect(stored.slice(0, 2)).toEqual(plain(first.messages));
    expect(stored.slice(2)).toEqual(plain(second.messages));
  });
});

describe("tools in the stock chat", () => {
  it("[TN13][US2] a server tool runs and the answer goes on; the client holds what is stored", async () => {
    const id = newSessionId("chat-tool");
    const chat = new ChatClient("tools", id);
    await within("the answer", chat.sendMessage({ text: '/call lookUp {"order":7}' }), chat);
    expect(partTypes(chat.lastMessage)).toEqual(["step-start", "tool-lookUp", "step-start", "text"]);
    expect(textOf(chat.lastMessage)).toContain('"state":"shipped"');
    const stored = await new HttpSession("tools", id).messages();
    expect(plain(chat.messages)).toEqual(stored);
    expect(stored[1]?.metadata).toMatchObject({
      model: "mirror",
      usage: { outputTokens: 28 },
      totalUsage: { outputTokens: 40 },
      steps: [{ outputTokens: 12 }, { outputTokens: 28 }],
    });
    expect(toolRuns(id)).toEqual(["lookUp"]);
  });

  it("[TN9] the output of a client tool continues the message it belongs to", async () => {
    const id = newSessionId("chat-client-tool");
    const http = new HttpSession("tools", id);
    const chat: ChatClient = new ChatClient("tools", id, {
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        void chat.addToolOutput({ tool: "locate", toolCallId: toolCall.toolCallId, output: { city: "Porto" } });
      },
    });
    await within("the call", chat.sendMessage({ text: "/call locate" }), chat);
    await eventually(
      "the answer",
      () => [chat.status, textOf(chat.lastMessage)],
      ([status, text]) => status === "ready" && text !== "",
    );
    expect(textOf(chat.lastMessage)).toContain('{"city":"Porto"}');
    expect([chat.messages.length, partTypes(chat.lastMessage)]).toEqual([
      2,
      ["step-start", "tool-locate", "step-start", "text"],
    ]);
    expect(plain(chat.messages)).toEqual(await http.messages());
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it("[TN11] an approved call runs once and the message goes on", async () => {
    const id = newSessionId("chat-approve");
    const http = new HttpSession("tools", id);
    const chat = new ChatClient("tools", id);
    await within("the question", chat.sendMessage({ text: '/call refund {"amount":5}' }), chat);
    expect(chat.lastMessage?.parts[1]).toMatchObject({ type: "tool-refund", state: "approval-requested" });
    expect(toolRuns(id)).toEqual([]);
    await approve(chat, true);
    await within("the answer", chat.sendMessage(), chat);
    expect(chat.error).toBe(undefined);
    expect(textOf(chat.lastMessage)).toContain('{"paid":5}');
    expect(toolRuns(id)).toEqual(["refund"]);
    expect(plain(chat.messages)).toEqual(await http.messages());
  });

  it("[TN11] a denial reaches the model, and the tool does not run", async () => {
    const id = newSessionId("chat-deny");
    const http = new HttpSession("tools", id);
    const chat = new ChatClient("tools", id);
    await within("the question", chat.sendMessage({ text: '/call refund {"amount":5}' }), chat);
    await approve(chat, false, "too much");
    await within("the answer", chat.sendMessage(), chat);
    expect(chat.error).toBe(undefined);
    expect(textOf(chat.lastMessage)).toContain("too much");
    expect(toolRuns(id)).toEqual([]);
    expect(plain(chat.messages)).toEqual(await http.messages());
  });

  it("[TN12] a tool that the request brings is offered, and does not take the place of a server tool", async () => {
    const id = newSessionId("chat-brought");
    const inputSchema = { type: "object", properties: {} };
    const clientTools = [
      { name: "beep", description: "Beeps.", inputSchema },
      { name: "lookUp", description: "A false one.", inputSchema },
    ];
    const chat = new ChatClient("tools", id, { body: { clientTools } });
    await within("the call", chat.sendMessage({ text: '/call beep\n/call lookUp {"order":1}' }), chat);
    expect(chat.lastMessage?.parts.slice(1)).toMatchObject([
      { type: "tool-beep", state: "input-available" },
      { type: "tool-lookUp", state: "output-available", output: { order: 1, state: "shipped" } },
    ]);
    expect(toolRuns(id)).toEqual(["lookUp"]);
    const plainChat = new ChatClient("tight", id, { body: { clientTools } });
    await within("the refusal", plainChat.sendMessage({ text: "hi" }), plainChat);
    expect(plainChat.error?.message).toMatch(/^bad-request: This session takes no client tools/);
  });
});

async function approve(chat: ChatClient, approved: boolean, reason?: string): Promise<void> {
  const part = chat.lastMessage?.parts.find((candidate) => candidate.type === "tool-refund");
  const approvalId = part && "approval" in part ? part.approval?.id : undefined;
  await chat.addToolApprovalResponse({ id: approvalId ?? "", approved, ...(reason !== undefined && { reason }) });
}
