// How clients speak to models: as much of each dialect as a canned tool call takes. `read` says which tools were offered and what tools answered so far;
// `stream` and `whole` word `{text}` or `{call: {name, namespace, id, input}}`.

const MODEL = 'stand-in';
const event = (data, name) => `${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;
const named = (data) => event(data, data.type);

/** Anthropic's messages. */
const MESSAGES = {
  path: /\/v1\/messages$/,
  read: ({ tools = [], messages = [] }) => ({
    offered: tools.map(({ name }) => ({ name })),
    results: messages.flatMap(({ content }) => (Array.isArray(content) ? content : [])).filter(({ type }) => type === 'tool_result').map(({ content }) => content),
  }),
  streamed: ({ stream }) => stream === true,
  whole: (answer) => ({
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: MODEL,
    content: [answer.call ? { type: 'tool_use', id: answer.call.id, name: answer.call.name, input: answer.call.input } : { type: 'text', text: answer.text }],
    stop_reason: answer.call ? 'tool_use' : 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  }),
  stream(answer) {
    const { content, stop_reason, ...message } = this.whole(answer);
    const [block, delta] = answer.call
      ? [{ ...content[0], input: {} }, { type: 'input_json_delta', partial_json: JSON.stringify(answer.call.input) }]
      : [{ type: 'text', text: '' }, { type: 'text_delta', text: answer.text }];
    return [
      { type: 'message_start', message: { ...message, content: [], stop_reason: null } },
      { type: 'content_block_start', index: 0, content_block: block },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 1 } },
      { type: 'message_stop' },
    ].map(named).join('');
  },
};

/** OpenAI's responses. Tools may come in namespaces. */
const RESPONSES = {
  path: /\/responses$/,
  read: ({ tools = [], input = [] }) => ({
    offered: tools.flatMap((one) => (one.type === 'namespace' ? one.tools.map(({ name }) => ({ name, namespace: one.name })) : [{ name: one.name ?? one.type }])),
    results: (Array.isArray(input) ? input : []).filter(({ type }) => type === 'function_call_output').map(({ output }) => output),
  }),
  streamed: ({ stream }) => stream === true,
  whole: (answer) => ({
    id: 'resp_1',
    object: 'response',
    model: MODEL,
    status: 'completed',
    output: [
      answer.call
        ? { type: 'function_call', id: 'fc_1', call_id: answer.call.id, name: answer.call.name, namespace: answer.call.namespace, arguments: JSON.stringify(answer.call.input), status: 'completed' }
        : { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: answer.text, annotations: [] }] },
    ],
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } },
  }),
  stream(answer) {
    const response = this.whole(answer);
    const [item] = response.output;
    return [
      { type: 'response.created', response: { ...response, status: 'in_progress', output: [] } },
      { type: 'response.output_item.added', output_index: 0, item },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response },
    ].map(named).join('');
  },
};

/** Chat completions, which nearly all clients support. */
const COMPLETIONS = {
  path: /\/chat\/completions$/,
  read: ({ tools = [], messages = [] }) => ({
    offered: tools.map((one) => ({ name: one.function?.name ?? one.type })),
    results: messages.filter(({ role }) => role === 'tool').map(({ content }) => content),
  }),
  streamed: ({ stream }) => stream === true,
  whole: (answer) => ({ ...COMPLETION, object: 'chat.completion', usage: USAGE, choices: [{ index: 0, finish_reason: finish(answer), message: { role: 'assistant', ...delta(answer) } }] }),
  stream: (answer) => {
    const chunk = (choice, rest = {}) => event({ ...COMPLETION, object: 'chat.completion.chunk', choices: [{ index: 0, delta: {}, finish_reason: null, ...choice }], ...rest });
    return `${chunk({ delta: { role: 'assistant', ...delta(answer) } })}${chunk({ finish_reason: finish(answer) }, { usage: USAGE })}data: [DONE]\n\n`;
  },
};
const COMPLETION = { id: 'chatcmpl-1', created: 1, model: MODEL };
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
const finish = ({ call }) => (call ? 'tool_calls' : 'stop');

function delta({ call, text }) {
  if (call === undefined) return { content: text };
  return { content: null, tool_calls: [{ index: 0, id: call.id, type: 'function', function: { name: call.name, arguments: JSON.stringify(call.input) } }] };
}

/** Gemini's generateContent. */
const GENERATE = {
  path: /:(stream)?[gG]enerateContent$/,
  read: ({ tools = [], contents = [] }) => ({
    offered: tools.flatMap(({ functionDeclarations = [] }) => functionDeclarations.map(({ name }) => ({ name }))),
    results: contents.flatMap(({ parts = [] }) => parts).filter((part) => part.functionResponse !== undefined).map((part) => part.functionResponse.response),
  }),
  streamed: (_, path) => path.includes(':stream'),
  whole: ({ call, text }) => ({
    candidates: [{ index: 0, finishReason: 'STOP', content: { role: 'model', parts: [call ? { functionCall: { name: call.name, args: call.input } } : { text }] } }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    modelVersion: MODEL,
  }),
  stream(answer) {
    return event(this.whole(answer));
  },
};

/** All that are spoken here. */
export const DIALECTS = [MESSAGES, RESPONSES, COMPLETIONS, GENERATE];
