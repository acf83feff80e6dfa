/** The AI SDK's own chat client, with plain state in memory and tool outputs out of a recording. */
import {
  AbstractChat,
  lastAssistantMessageIsCompleteWithToolCalls,
  type ChatState,
  type ChatStatus,
  type ChatTransport,
  type UIMessage,
} from "ai";

class MemoryState implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  messages: UIMessage[] = [];

  pushMessage = (message: UIMessage): void => {
    this.messages = [...this.messages, message];
  };

  popMessage = (): void => {
    this.messages = this.messages.slice(0, -1);
  };

  replaceMessage = (index: number, message: UIMessage): void => {
    this.messages = this.messages.with(index, message);
  };

  snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** What the client knows beforehand: the results its tools will give. */
export interface ToolDesk {
  /** output of a call; undefined: the tool never comes back */
  outputOf(toolCallId: string): string | undefined;
  /** false where the recorded client did not ask the model to go on, although every tool had answered */
  goesOn(message: UIMessage): boolean;
}

export interface MemoryChatInit {
  id: string;
  transport: ChatTransport<UIMessage>;
  desk: ToolDesk;
}

export class MemoryChat extends AbstractChat<UIMessage> {
  constructor({ id, transport, desk }: MemoryChatInit) {
    super({
      id,
      transport,
      state: new MemoryState(),
      sendAutomaticallyWhen: ({ messages }) => {
        const last = messages.at(-1);
        return last !== undefined && desk.goesOn(last) && lastAssistantMessageIsCompleteWithToolCalls({ messages });
      },
      onToolCall: ({ toolCall }) => {
        const output = desk.outputOf(toolCall.toolCallId);
        // not awaited: the chat runs it after the chunk it is reading now
        if (output !== undefined)
          void this.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
      },
    });
  }
}
