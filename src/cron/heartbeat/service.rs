//! Looks at the file when it is time, and puts what is due into the inbox.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daoyou_channels::settings::Span;
use daoyou_channels::trust::{Author, Standing, trust_of};
use daoyou_channels::{InboundMessage, OutboundContext, SessionKey, TurnBounds, TurnSettings};
use jiff::Timestamp;

use super::HeartbeatSettings;
use super::due::{Memory, choose};
use super::ended::OK;
use super::items::{self, Item};
use crate::bus::{InboundDraft, MessageBus, OutboundBody, OutboundDraft};
use crate::guard::{Jail, JailError};
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::{Commit, Connection, StoreError, inbox, notes, usage};

/// The session that its turns run in.
pub const SESSION: &str = "heartbeat";

const FILE: &str = "HEARTBEAT.md";

/// A larger file is not read, in bytes.
const FILE_LIMIT: u64 = 65_536;

/// Responses with tool calls of one turn.
const ITERATIONS: u32 = 30;

/// Active time of one turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(600);

/// Looks after HEARTBEAT.md.
pub struct Heartbeat {
    bus: Arc<MessageBus>,
    /// The agent's commands can put a link or a pipe in the file's place: none is followed, and nothing private is
    /// read.
    workspace: Jail,
    next: Mutex<Option<Timestamp>>,
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Nothing,
    Asked,
    /// The day's tokens are used up, and the chat is told so.
    Silenced,
}

/// Whether looks come so often that once a minute does not do.
pub fn is_fast(every: Span) -> bool {
    every < Span::from_secs(60)
}

impl Heartbeat {
    /// # Errors
    /// The workspace is not a folder that can be opened.
    pub fn new(bus: Arc<MessageBus>, workspace: &Path, closed: &[PathBuf]) -> std::io::Result<Self> {
        let workspace = Jail::of_gateway(workspace, FILE_LIMIT)?.without(closed);
        Ok(Self { bus, workspace, next: Mutex::default() })
    }

    /// Looks, if it is time. To be called every minute, or oftener.
    pub async fn tick(&self, settings: &HeartbeatSettings, now: Timestamp) {
        if !self.is_time(settings, now) {
            return;
        }
        match self.look(settings, now).await {
            // The gateway is going.
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the heartbeat could not look; it will at the next"),
        }
    }

    fn is_time(&self, settings: &HeartbeatSettings, now: Timestamp) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if !settings.config.enabled {
            *next = None;
            return false;
        }
        let is_time = next.is_some_and(|next| next <= now) && settings.is_active(now);
        // Also when the clock was set back, or the settings are others.
        *next = settings.next_look(now);
        is_time
    }

    async fn look(&self, settings: &HeartbeatSettings, now: Timestamp) -> Result<(), StoreError> {
        let items = match self.workspace.read(FILE) {
            Ok(opened) => items::read(&String::from_utf8_lossy(&opened.bytes), &settings.zone),
            Err(JailError::Missing(_)) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the heartbeat does nothing: {FILE} cannot be read");
                return Ok(());
            }
        };
        tracing::debug!(entries = items.len(), "the heartbeat looks");
        if items.is_empty() {
            return Ok(());
        }
        let (items, of_look) = (Arc::new(items), settings.clone());
        let seen = items.clone();
        // Nearly always there is nothing to do, and then nothing to write.
        let changes = move |connection: &Connection| {
            let memory = load(connection)?;
            Ok(of_look.choose(&seen, &memory, now).1 != memory)
        };
        if !self.bus.store().read(changes).await? {
            return Ok(());
        }
        let of_look = settings.clone();
        let take = move |connection: &Connection| take(connection, &of_look, &items, now);
        match self.bus.store().write(Commit::Synced, take).await? {
            Look::Nothing => {}
            Look::Asked => self.bus.inbound_written(SessionKey::from(SESSION), 1),
            Look::Silenced => self.bus.outbound_written(&settings.channel, 1),
        }
        Ok(())
    }
}

impl HeartbeatSettings {
    fn choose<'i>(&self, items: &'i [Item], memory: &Memory, now: Timestamp) -> (Vec<&'i Item>, Memory) {
        let limit = usize::try_from(self.config.max_items).unwrap_or(usize::MAX);
        choose(items, memory, now, &self.zone, limit)
    }

    /// The tokens that its turns have used since midnight.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn tokens_today(&self, connection: &Connection, now: Timestamp) -> Result<u64, StoreError> {
        let midnight = now.to_zoned(self.zone.clone()).start_of_day().map_or(now, |day| day.timestamp());
        usage::tokens_since(connection, SESSION, midnight.as_millisecond())
    }
}

/// Puts what is due into the inbox, unless the turn before is unfinished or the day's tokens are used up.
fn take(
    connection: &Connection,
    settings: &HeartbeatSettings,
    items: &[Item],
    now: Timestamp,
) -> Result<Look, StoreError> {
    if !inbox::open_of_session(connection, SESSION, 1)?.is_empty() {
        return Ok(Look::Nothing);
    }
    let memory = load(connection)?;
    let (due, after) = settings.choose(items, &memory, now);
    if due.is_empty() {
        save(connection, &after)?;
        return Ok(Look::Nothing);
    }
    let budget = settings.config.tokens_per_day;
    let used = settings.tokens_today(connection, now)?;
    if used >= budget {
        return silence(connection, settings, now);
    }
    save(connection, &after)?;
    message(settings, &due, budget - used, now).insert(connection)?;
    Ok(Look::Asked)
}

/// Says once a day that there are no tokens left.
fn silence(connection: &Connection, settings: &HeartbeatSettings, now: Timestamp) -> Result<Look, StoreError> {
    let today = now.to_zoned(settings.zone.clone()).date().to_string();
    if notes::get(connection, SESSION, "silent", "day")?.is_some_and(|(day, _)| day == today) {
        return Ok(Look::Nothing);
    }
    notes::set(connection, SESSION, "silent", "day", &today)?;
    let body = OutboundBody {
        content: settings.silent.replacen("{}", &settings.config.tokens_per_day.to_string(), 1),
        session: SessionKey::of_chat(&settings.channel, &settings.chat_id),
        in_reply_to: None,
        attachments: Vec::new(),
        metadata: serde_json::Map::new(),
        context: subject(),
        error: None,
    };
    let (channel, chat_id) = (settings.channel.clone(), settings.chat_id.clone());
    OutboundDraft { turn: daoyou_channels::new_id(), slot: "notice:heartbeat".to_owned(), channel, chat_id, body }
        .insert(connection)?;
    Ok(Look::Silenced)
}

fn message(settings: &HeartbeatSettings, due: &[&Item], tokens: u64, now: Timestamp) -> InboundDraft {
    let items: Vec<_> = due.iter().map(|item| format!("- {}", item.text)).collect();
    let model = Some(settings.config.model.clone()).filter(|model| !model.is_empty());
    let timeout_ms = u64::try_from(TURN_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let turn = TurnSettings {
        model,
        prompt: Some(format!(
            "These entries of {FILE} are new, changed or due. Nobody wrote just now: look after them, each for itself. Answer \
             with what the owner should know, in one message. If there is nothing that is worth one, answer {OK} and \
             nothing else."
        )),
        fresh: true,
        bounds: Some(TurnBounds { iterations: ITERATIONS, tokens, timeout_ms }),
        ..TurnSettings::default()
    };
    let trust = trust_of(Author::Owner, Standing::Owner);
    let content = format!("Heartbeat:\n{}", items.join("\n"));
    let mut message = InboundMessage::text(&settings.channel, &settings.chat_id, SESSION, trust, content);
    (message.received_at, message.session) = (now, Some(SessionKey::from(SESSION)));
    let origin = TurnOrigin { cause: TurnCause::Heartbeat, settings: turn, reply: subject(), ..TurnOrigin::default() };
    InboundDraft::with_origin(message, origin)
}

fn subject() -> OutboundContext {
    OutboundContext { subject: Some("Heartbeat".to_owned()), ..OutboundContext::default() }
}

/// What is remembered; what cannot be read is forgotten.
pub(super) fn load(connection: &Connection) -> Result<Memory, StoreError> {
    let note = notes::get(connection, SESSION, "memory", "items")?;
    Ok(note.and_then(|(memory, _)| serde_json::from_str(&memory).ok()).unwrap_or_default())
}

pub(super) fn save(connection: &Connection, memory: &Memory) -> Result<(), StoreError> {
    notes::set(connection, SESSION, "memory", "items", &serde_json::to_string(memory)?)
}
