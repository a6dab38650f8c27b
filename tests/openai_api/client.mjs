// What OpenAI's client for Node makes of the gateway; prints one JSON object.
const [library, baseURL, apiKey, png] = process.argv.slice(2);
const { default: OpenAI } = await import(library);
const client = new OpenAI({ baseURL, apiKey });
const found = {};

const ask = (content, options = {}, request = {}) =>
  client.chat.completions.create({ model: "daoyou", messages: [{ role: "user", content }], ...options }, request);
const collect = async (stream) => {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
};
const refused = async (call) => {
  try {
    return { answer: JSON.stringify(await call()) };
  } catch (error) {
    return { class: error.constructor.name, status: error.status ?? null, code: error.code, type: error.type };
  }
};

found.models = (await collect(await client.models.list())).map((model) => model.id);
const plain = await ask("hello");
found.plain = [plain.choices[0].message.content, plain.choices[0].finish_reason, plain.usage.total_tokens];

const chunks = await collect(await ask("hello", { stream: true, stream_options: { include_usage: true } }));
const texts = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "");
found.stream = [texts.join(""), chunks.length > 3, chunks.at(-1).usage.total_tokens];
const helper = client.chat.completions.stream({ model: "daoyou", messages: [{ role: "user", content: "hello" }] });
found.helper = await helper.finalContent();

const image = { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } };
found.image = (await ask([{ type: "text", text: "hello image" }, image])).choices[0].message.content;

const named = { headers: { "X-Session-Id": "node" } };
await ask("my name is Ann", {}, named);
found.session = (await ask("who am I?", {}, named)).choices[0].message.content;

const response = await client.responses.create({ model: "daoyou", input: "hello" });
found.response = [response.output_text, response.status, response.usage.total_tokens];
const events = await collect(await client.responses.create({ model: "daoyou", input: "hello", stream: true }));
found.events = [...new Set(events.map((event) => event.type))];
found.response_helper = (await client.responses.stream({ model: "daoyou", input: "hello" }).finalResponse()).output_text;

const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
const other = new OpenAI({ baseURL, apiKey: "wrong" });
found.refused = {
  model: await refused(() => client.chat.completions.create({ model: "gpt-9", messages: [{ role: "user", content: "x" }] })),
  tools: await refused(() => ask("hello", { tools })),
  token: await refused(() => other.models.list()),
  failed: await refused(() => ask("fail")),
  failed_stream: await refused(async () => collect(await ask("fail", { stream: true }))),
};

// The first attempts end before the answer; the last one gets it.
const slow = { timeout: 500, maxRetries: 8, headers: { "X-Session-Id": "slow" } };
found.repeated = (await ask("slowly", {}, slow)).choices[0].message.content;
console.log(JSON.stringify(found));
