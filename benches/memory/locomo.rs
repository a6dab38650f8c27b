//! LoCoMo (Maharana et al., 2024): long conversations of two people, and questions with the turns that answer them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};
use daoyou::llm::ChatMessage;
use daoyou::memory::{Found, Identities, Owner, recall, words};
use daoyou::store::inbox::{self, NewMessage, State};
use daoyou::store::{Connection, StoreError, messages};
use serde_json::Value;
use uuid::Uuid;

use super::{World, as_f64, ask, tokens};

const CHANNEL: &str = "webhook:locomo";
const CHAT: &str = "webhook:locomo:chat";
const HITS: [usize; 4] = [5, 10, 20, 50];

/// One thing that was said.
struct Turn {
    speaker: String,
    id: String,
    text: String,
}

struct Question {
    text: String,
    evidence: HashSet<String>,
}

#[derive(Default)]
struct Sum {
    questions: usize,
    recall: [f64; HITS.len()],
    tokens: [f64; HITS.len()],
}

/// The table: recall and tokens, a mean over all questions of all conversations.
pub async fn measure(file: &Path, is_quick: bool) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let samples: Vec<Value> = serde_json::from_str(&text).context("not the form of locomo10.json")?;
    let mut sum = Sum::default();
    for sample in samples.iter().take(if is_quick { 1 } else { usize::MAX }) {
        one(sample, &mut sum).await?;
    }
    let mut table = format!(
        "**LoCoMo**, {} questions. Each conversation is one session, each of its turns one message of its speaker. *Recall* is the share of \
         a question's evidence turns among the first hits, mean over the questions that name evidence which is there; \
         *tokens* are those of the hits, a quarter of their characters. Plain BM25 by turn is given for comparison.\n\n\
         | hits | recall | tokens | BM25: recall | BM25: tokens |\n|---|---|---|---|---|\n",
        sum.questions
    );
    const PLAIN: [(&str, &str); HITS.len()] =
        [("0.517", "192"), ("0.590", "375"), ("0.662", "737"), ("0.740", "1,767")];
    for (at, hits) in HITS.iter().enumerate() {
        let count = as_f64(sum.questions.max(1));
        let (recall, tokens) = (sum.recall[at] / count, sum.tokens[at] / count);
        let (plain, plain_tokens) = PLAIN[at];
        table += &format!("| {hits} | {recall:.3} | {tokens:.0} | {plain} | {plain_tokens} |\n");
    }
    Ok(table)
}

async fn one(sample: &Value, sum: &mut Sum) -> Result<()> {
    let turns = turns(&sample["conversation"]);
    let ids: HashMap<i64, String> = (0..).zip(turns.iter().map(|turn| turn.id.clone())).collect();
    let speakers: HashSet<String> = turns.iter().map(|turn| turn.speaker.clone()).collect();
    let owners: Vec<Owner> = speakers.iter().map(|speaker| Owner::sender(CHANNEL, speaker)).collect();
    let known: HashSet<&String> = ids.values().collect();
    let questions = questions(&sample["qa"], &known);
    let world = World::new()?;
    world.fill(move |connection| tell(connection, &turns)).await?;
    for question in questions {
        let ask = ask(&question.text, owners.clone(), HITS[HITS.len() - 1]);
        let hits = world.store.read(move |connection| recall(connection, &ask, None)).await?;
        sum.questions += 1;
        for (at, most) in HITS.iter().enumerate() {
            let first = &hits[..hits.len().min(*most)];
            let is_evidence =
                |found: &Found| matches!(found, Found::Message { seq, .. } if question.evidence.contains(&ids[seq]));
            let found = first.iter().filter(|hit| is_evidence(&hit.found)).count();
            sum.recall[at] += as_f64(found) / as_f64(question.evidence.len());
            sum.tokens[at] += first.iter().map(|hit| tokens(&hit.text)).sum::<f64>();
        }
    }
    Ok(())
}

fn turns(conversation: &Value) -> Vec<Turn> {
    let sessions = (1..).map_while(|number| conversation[format!("session_{number}")].as_array());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    sessions
        .flatten()
        .map(|turn| {
            let mut said = text(&turn["text"]);
            if let Some(caption) = turn["blip_caption"].as_str() {
                said += &format!("\n[image: {caption}]");
            }
            Turn { speaker: text(&turn["speaker"]), id: text(&turn["dia_id"]), text: said }
        })
        .collect()
}

fn questions(qa: &Value, known: &HashSet<&String>) -> Vec<Question> {
    let all = qa.as_array().into_iter().flatten().map(|entry| {
        let evidence = entry["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let evidence = evidence.filter(|id| known.contains(id)).collect();
        Question { text: entry["question"].as_str().unwrap_or_default().to_owned(), evidence }
    });
    all.filter(|question| !question.evidence.is_empty()).collect()
}

/// Each turn as a message of its speaker, as a channel with two people would bring it.
fn tell(connection: &Connection, turns: &[Turn]) -> Result<(), StoreError> {
    for turn in turns {
        let id = Uuid::now_v7();
        let message = NewMessage {
            id,
            channel: CHANNEL.to_owned(),
            external_id: id.to_string(),
            session: CHAT.to_owned(),
            chat_id: "chat".to_owned(),
            sender: turn.speaker.clone(),
            trust: "known",
            content: turn.text.clone(),
            attachments: "[]".to_owned(),
            metadata: "{}".to_owned(),
            received_at: 0,
            state: State::Done,
        };
        inbox::insert(connection, &message)?;
        let body = serde_json::to_string(&ChatMessage::user(&turn.text))?;
        messages::append(connection, CHAT, id, [("user", body)].into_iter())?;
    }
    words::rebuild(connection, &Identities::default())
}
