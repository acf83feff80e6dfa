/** Files that a model cannot be shown: their turn fails, and the session goes on. */
import { UnsupportedFunctionalityError, type LanguageModelV4CallOptions } from "@ai-sdk/provider";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { contextSession, type ContextSession } from "./context-session.ts";
import { MirrorAs } from "./mirror-as.ts";
import { userMessage, type Reply } from "./socket.ts";

/** Reads text alone, and says so as providers do. */
class Blind extends MirrorAs {
  override async doStream(call: LanguageModelV4CallOptions) {
    const files = call.prompt.flatMap(({ content }) =>
      typeof content === "string" ? [] : content.filter((part) => part.type === "file"),
    );
    if (files[0]) throw new UnsupportedFunctionalityError({ functionality: `media type ${files[0].mediaType}` });
    return super.doStream(call);
  }
}

const messageWith = (file: object): UIMessage => ({
  ...userMessage("Listen:"),
  parts: [
    { type: "text", text: "Listen:" },
    { type: "file", mediaType: "audio/midi", url: "", ...file },
  ],
});

async function post(session: ContextSession, message: object): Promise<Reply> {
  const requestId = crypto.randomUUID();
  session.socket.submit(requestId, [message]);
  return session.socket.reply(requestId);
}

const SONG = { filename: "song.mid", url: "data:audio/midi;base64,TVRoZA==" };
const UNREACHABLE = { mediaType: "image/png", url: "http://127.0.0.1:1/x.png" };

describe("a file that the model cannot be shown", () => {
  it.each<[string, object, string, string]>([
    [
      "an unsupported type",
      SONG,
      "model-failed: The model failed: it cannot be shown part of the conversation (media type audio/midi).",
      "[A file was sent here that cannot be shown again: song.mid, audio/midi]",
    ],
    [
      "an address that gives nothing",
      UNREACHABLE,
      "model-failed: The model failed: a file of the conversation could not be downloaded.",
      "[A file was sent here that cannot be shown again: image/png]",
    ],
  ])(
    "[TN28] for %s fails its turn with a sentence, and the later ones are answered",
    async (_name, file, said, line) => {
      const model = new Blind("acme", "blind");
      const session = await contextSession("file", { configure: (builder) => builder.model(model) });
      const failed = await post(session, messageWith(file));
      expect([failed.ending, failed.errorText]).toEqual(["error", said]);
      for (const words of [3, 4]) {
        const reply = await session.say("And now?", words);
        expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", words]);
        expect(JSON.stringify(model.calls.at(-1)?.prompt[0])).toContain(line);
      }
      const stored = (await session.http.messages())[0];
      expect(stored?.parts[1]).toMatchObject({ type: "file", ...file });
      expect((await session.http.summary()).turn).toBe(null);
    },
  );

  it("[TN28] fails every turn that brings one, whatever earlier messages hold", async () => {
    const model = new Blind("acme", "blind");
    const session = await contextSession("files", { configure: (builder) => builder.model(model) });
    await post(session, messageWith(SONG));
    const again = await post(session, messageWith(SONG));
    expect([again.ending, again.code]).toEqual(["error", "model-failed"]);
    expect(model.calls).toHaveLength(0);
    expect((await session.say("And now?", 3)).ending).toBe("end");
    expect(model.calls).toHaveLength(1);
  });

  it("[TN28] does not take the files from a model that can be shown them", async () => {
    const model = new MirrorAs("acme", "seeing");
    const session = await contextSession("seeing", { configure: (builder) => builder.model(model) });
    await post(session, messageWith(SONG));
    await session.say("And now?", 3);
    expect(model.calls.map(({ prompt }) => JSON.stringify(prompt[0]).includes('"file"'))).toEqual([true, true]);
  });

  it.each(["data:image/png;base64,AAAAA", "data:image/png;base64,AAA==", "data:image/png;base64,A*B="])(
    "[TN28] is refused at once where nobody could decode it: %s",
    async (url) => {
      const session = await contextSession("undecodable");
      const reply = await post(session, messageWith({ mediaType: "image/png", url }));
      expect([reply.ending, reply.code]).toEqual(["error", "invalid-message"]);
      expect((await session.http.summary()).messages).toBe(0);
    },
  );
});
