//! LoCoMo (Maharana et al., 2024): long conversations of two people, and questions with the turns that answer them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};
use daoyou::llm::ChatMessage;
use daoyou::memory::{Ask, Found, Hit, Identities, Owner, recall, words};
use daoyou::store::inbox::{self, NewMessage, State};
use daoyou::store::{Connection, StoreError, messages};
use serde_json::Value;
use uuid::Uuid;

use super::embedded::{Service, find};
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

/// What was measured of one way to find.
#[derive(Default)]
struct Sum {
    questions: usize,
    recall: [f64; HITS.len()],
    tokens: [f64; HITS.len()],
}

/// The tables: recall and tokens, a mean over all questions of all conversations, by words and with vectors of `service`.
pub async fn measure(file: &Path, service: Option<&Service>, is_quick: bool) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let samples: Vec<Value> = serde_json::from_str(&text).context("not the form of locomo10.json")?;
    let (mut by_words, mut by_both) = (Sum::default(), Sum::default());
    for sample in samples.iter().take(if is_quick { 1 } else { usize::MAX }) {
        let (world, told) = Told::of(sample).await?;
        for question in &told.questions {
            let ask = told.ask(question);
            by_words.add(&told, question, &world.store.read(move |connection| recall(connection, &ask, None)).await?);
        }
        let Some(service) = service else { continue };
        let desk = service.embed(&world).await?;
        for question in &told.questions {
            by_both.add(&told, question, &find(&desk, told.ask(question)).await?);
        }
    }
    let mut table = format!(
        "**LoCoMo**, {} questions. Each conversation is one session, each of its turns one message of its speaker. *Recall* is the share of \
         a question's evidence turns among the first hits, mean over the questions that name evidence which is there; \
         *tokens* are those of the hits, a quarter of their characters. Plain BM25 by turn is given for comparison.\n\n{}",
        by_words.questions,
        by_words.table()
    );
    if let Some(service) = service {
        table += &format!("\nThe same with the vectors of `{}`, too.\n\n{}", service.model(), by_both.table());
    }
    Ok(table)
}

impl Sum {
    fn add(&mut self, told: &Told, question: &Question, hits: &[Hit]) {
        self.questions += 1;
        for (at, most) in HITS.iter().enumerate() {
            let first = &hits[..hits.len().min(*most)];
            let is_evidence = |found: &Found| matches!(found, Found::Message { seq, .. } if question.evidence.contains(&told.ids[seq]));
            let found = first.iter().filter(|hit| is_evidence(&hit.found)).count();
            self.recall[at] += as_f64(found) / as_f64(question.evidence.len());
            self.tokens[at] += first.iter().map(|hit| tokens(&hit.text)).sum::<f64>();
        }
    }

    fn table(&self) -> String {
        const PLAIN: [(&str, &str); HITS.len()] =
            [("0.517", "192"), ("0.590", "375"), ("0.662", "737"), ("0.740", "1,767")];
        let mut table = "| hits | recall | tokens | BM25: recall | BM25: tokens |\n|---|---|---|---|---|\n".to_owned();
        for (at, hits) in HITS.iter().enumerate() {
            let count = as_f64(self.questions.max(1));
            let (recall, tokens) = (self.recall[at] / count, self.tokens[at] / count);
            let (plain, plain_tokens) = PLAIN[at];
            table += &format!("| {hits} | {recall:.3} | {tokens:.0} | {plain} | {plain_tokens} |\n");
        }
        table
    }
}

/// One conversation, and what is asked of it.
struct Told {
    /// The name of each turn, by its place in the session.
    ids: HashMap<i64, String>,
    owners: Vec<Owner>,
    questions: Vec<Question>,
}

impl Told {
    async fn of(sample: &Value) -> Result<(World, Self)> {
        let turns = turns(&sample["conversation"]);
        let ids: HashMap<i64, String> = (0..).zip(turns.iter().map(|turn| turn.id.clone())).collect();
        let speakers: HashSet<String> = turns.iter().map(|turn| turn.speaker.clone()).collect();
        let owners = speakers.iter().map(|speaker| Owner::sender(CHANNEL, speaker)).collect();
        let questions = questions(&sample["qa"], &ids.values().collect());
        let world = World::new()?;
        world.fill(move |connection| tell(connection, &turns)).await?;
        Ok((world, Self { ids, owners, questions }))
    }

    fn ask(&self, question: &Question) -> Ask {
        ask(&question.text, self.owners.clone(), HITS[HITS.len() - 1])
    }
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
