"""What OpenAI's client for Python makes of the gateway; prints one JSON object."""
import base64, json, sys
import openai

base_url, token, png = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=token)
found = {}


def ask(text, **options):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="daoyou", messages=messages, **options)


def refused(call):
    try:
        return {"answer": str(call())}
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "code": error.code, "type": error.type}
    except openai.OpenAIError as error:
        return {"class": type(error).__name__, "code": getattr(error, "code", None)}


found["models"] = [model.id for model in client.models.list()]
found["model"] = client.models.retrieve("scripted/scripted").id

plain = ask("hello")
found["plain"] = [plain.choices[0].message.content, plain.choices[0].finish_reason, plain.usage.total_tokens]

chunks = list(ask("hello", stream=True, stream_options={"include_usage": True}))
texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
found["stream"] = ["".join(texts), len(chunks) > 3, chunks[-1].usage.total_tokens]
with client.chat.completions.stream(model="daoyou", messages=[{"role": "user", "content": "hello"}]) as stream:
    stream.until_done()
    found["helper"] = stream.get_final_completion().choices[0].message.content

url = "data:image/png;base64," + png
parts = [{"type": "text", "text": "hello image"}, {"type": "image_url", "image_url": {"url": url}}]
found["image"] = ask(parts).choices[0].message.content

named = {"X-Session-Id": "python"}
ask("my name is Ann", extra_headers=named)
found["session"] = ask("who am I?", extra_headers=named).choices[0].message.content

response = client.responses.create(model="daoyou", input="hello", instructions="Be brief.")
found["response"] = [response.output_text, response.status, response.usage.total_tokens]
events = list(client.responses.create(model="daoyou", input="hello", stream=True))
found["events"] = list(dict.fromkeys(event.type for event in events))
found["event_text"] = [
    "".join(event.delta for event in events if event.type == "response.output_text.delta"),
    events[-1].response.output_text,
]
with client.responses.stream(model="daoyou", input="hello") as stream:
    found["response_helper"] = stream.get_final_response().output_text
client.responses.create(model="daoyou", input="my name is Ann", previous_response_id=response.id)
last = client.responses.create(model="daoyou", input="who am I?", previous_response_id=response.id)
found["previous"] = [last.output_text, last.previous_response_id == response.id]

tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
other = openai.OpenAI(base_url=base_url, api_key="wrong")
found["refused"] = {
    "model": refused(lambda: client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])),
    "tools": refused(lambda: ask("hello", tools=tools)),
    "many": refused(lambda: ask("hello", n=2)),
    "token": refused(other.models.list),
    "failed": refused(lambda: ask("fail")),
    "failed_stream": refused(lambda: list(ask("fail", stream=True))),
    "failed_response": client.responses.create(model="daoyou", input="hello").error,
    "failed_response_stream": list(client.responses.create(model="daoyou", input="fail", stream=True))[-1].type,
    "embeddings": refused(lambda: client.embeddings.create(model="daoyou", input="x")),
}

# The first attempts end before the answer; the last one gets it.
found["repeated"] = client.with_options(timeout=0.5, max_retries=8).chat.completions.create(
    model="daoyou", messages=[{"role": "user", "content": "slowly"}], extra_headers={"X-Session-Id": "slow"}
).choices[0].message.content
print(json.dumps(found))
