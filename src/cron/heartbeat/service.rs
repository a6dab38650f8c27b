//! Checks HEARTBEAT.md at the configured times, and puts the due entries into the inbox.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::{HumanDuration, size};
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{InboundMessage, OutboundContext, SessionKey, TurnBounds, TurnSettings};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;

use super::HeartbeatSettings;
use super::due::{HeartbeatState, choose_due, load, save};
use super::items::{self, HeartbeatItem};
use super::run_end::OK;
use crate::bus::{InboundDraft, MessageBus, NoticeKind, OutboundBody, OutboundDraft, OutboxSlot};
use crate::guard::{Jail, JailError};
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::{Connection, Durability, StoreError, inbox, notes, usage};

/// The session of the heartbeat's turns.
pub const SESSION: &str = "heartbeat";

pub const FILE: &str = "HEARTBEAT.md";

/// The largest file that is read, in bytes.
const FILE_LIMIT: u64 = 65_536;

/// The maximum number of responses with tool calls in one turn.
const ITERATIONS: u32 = 30;

/// The longest active time of one turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(600);

/// The largest number of reported faults of the file.
const MAX_FAULTS: usize = 20;

/// A fault of HEARTBEAT.md: an entry that does not run, or the file itself cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatFault {
    /// The line of the entry.
    pub line: Option<usize>,
    /// A sentence about the entry or the file.
    pub reason: String,
}

/// Returns the faults of HEARTBEAT.md in a workspace. `closed` are private paths.
///
/// # Errors
/// The workspace is not a folder that can be opened.
pub fn file_faults(workspace: &Path, closed: &[PathBuf], zone: &TimeZone) -> std::io::Result<Vec<HeartbeatFault>> {
    let items = match HeartbeatFile::open(workspace, closed)?.items(zone) {
        Ok(items) => items,
        Err(error) => return Ok(vec![HeartbeatFault { line: None, reason: format!("it cannot be read: {error}") }]),
    };
    let fault = |HeartbeatItem { line, misread, .. }: HeartbeatItem| {
        let schedule = misread?;
        let reason = items::misread_reason(&schedule, zone);
        Some(HeartbeatFault {
            line: Some(line),
            reason: format!("the schedule {schedule:?} is not understood: {reason}"),
        })
    };
    Ok(items.into_iter().filter_map(fault).take(MAX_FAULTS).collect())
}

/// HEARTBEAT.md of a workspace. The agent's commands can replace the file by a link or a pipe; the jail follows no link and reads
/// nothing private.
struct HeartbeatFile(Jail);

impl HeartbeatFile {
    fn open(workspace: &Path, closed: &[PathBuf]) -> std::io::Result<Self> {
        Ok(Self(Jail::open_strict(workspace, Vec::new(), FILE_LIMIT)?.with_closed(closed)))
    }

    /// Returns the current entries; none without a file.
    fn items(&self, zone: &TimeZone) -> Result<Vec<HeartbeatItem>, JailError> {
        match self.0.read(FILE) {
            Ok(opened) => Ok(items::parse_items(&String::from_utf8_lossy(&opened.bytes), zone)),
            Err(JailError::Missing(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The check of HEARTBEAT.md.
pub struct Heartbeat {
    bus: Arc<MessageBus>,
    file: HeartbeatFile,
    next: Mutex<Option<Timestamp>>,
    /// The hashes of the entries of the file whose misread schedule was reported.
    reported: Mutex<HashSet<String>>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeartbeatOutcome {
    Nothing,
    Asked,
    /// The tokens of the day are used up, and the chat was informed.
    Silenced,
}

/// Returns true if checks are more frequent than once a minute.
pub fn is_fast(every: HumanDuration) -> bool {
    every < HumanDuration::from_secs(60)
}

impl Heartbeat {
    /// # Errors
    /// The workspace is not a folder that can be opened.
    pub fn new(bus: Arc<MessageBus>, workspace: &Path, closed: &[PathBuf]) -> std::io::Result<Self> {
        let file = HeartbeatFile::open(workspace, closed)?;
        Ok(Self { bus, file, next: Mutex::default(), reported: Mutex::default() })
    }

    /// Runs a check if it is time. The caller calls this at least every minute.
    pub async fn tick(&self, settings: &HeartbeatSettings, now: Timestamp) {
        if !self.is_time(settings, now) {
            return;
        }
        match self.check(settings, now).await {
            // A closed store means that the gateway stops.
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the heartbeat check failed; the next check retries"),
        }
    }

    fn is_time(&self, settings: &HeartbeatSettings, now: Timestamp) -> bool {
        let mut next = self.next.lock();
        if !settings.config.enabled {
            *next = None;
            return false;
        }
        let is_time = next.is_some_and(|next| next <= now) && settings.is_active(now);
        // The next check is computed anew each time, so that a clock that was set back or changed settings take effect.
        *next = settings.next_check(now);
        is_time
    }

    async fn check(&self, settings: &HeartbeatSettings, now: Timestamp) -> Result<(), StoreError> {
        let items = match self.file.items(&settings.zone) {
            Ok(items) => items,
            Err(error) => {
                tracing::warn!(%error, "the heartbeat is idle: {FILE} cannot be read");
                return Ok(());
            }
        };
        let items = self.without_misread(items, &settings.zone);
        tracing::debug!(entries = items.len(), "checking HEARTBEAT.md");
        if items.is_empty() {
            return Ok(());
        }
        let (items, check_settings) = (Arc::new(items), settings.clone());
        let seen = items.clone();
        // Usually no entry is due, so this read avoids a write.
        let changes = move |connection: &Connection| {
            let state = load(connection)?;
            Ok(check_settings.choose(&seen, &state, now).1 != state)
        };
        if !self.bus.store().read(changes).await? {
            return Ok(());
        }
        let check_settings = settings.clone();
        let take = move |connection: &Connection| take(connection, &check_settings, &items, now);
        match self.bus.store().write(Durability::Synced, take).await? {
            HeartbeatOutcome::Nothing => {}
            HeartbeatOutcome::Asked => self.bus.inbound_written(SessionKey::from(SESSION), 1),
            HeartbeatOutcome::Silenced => self.bus.outbound_written(&settings.channel, 1),
        }
        Ok(())
    }

    /// Returns the entries that can run. Reports each other one once: its schedule is not understood.
    fn without_misread(&self, items: Vec<HeartbeatItem>, zone: &TimeZone) -> Vec<HeartbeatItem> {
        let (misread, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.misread.is_some());
        let mut reported = self.reported.lock();
        for item in misread.iter().filter(|item| !reported.contains(&item.hash)) {
            let schedule = item.misread.as_deref().unwrap_or_default();
            let reason = items::misread_reason(schedule, zone);
            tracing::warn!(
                line = item.line,
                schedule,
                reason,
                "an entry of {FILE} does not run, because its schedule is not understood"
            );
        }
        *reported = misread.into_iter().map(|item| item.hash).collect();
        items
    }
}

impl HeartbeatSettings {
    fn choose<'i>(
        &self,
        items: &'i [HeartbeatItem],
        state: &HeartbeatState,
        now: Timestamp,
    ) -> (Vec<&'i HeartbeatItem>, HeartbeatState) {
        choose_due(items, state, now, &self.zone, size(self.config.max_items))
    }

    /// Returns the tokens that the heartbeat's turns have used since midnight.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn tokens_today(&self, connection: &Connection, now: Timestamp) -> Result<u64, StoreError> {
        let midnight = now.to_zoned(self.zone.clone()).start_of_day().map_or(now, |day| day.timestamp());
        usage::tokens_since(connection, SESSION, midnight.as_millisecond())
    }
}

/// Puts the due entries into the inbox, unless the previous turn is unfinished or the day's tokens are used up.
fn take(
    connection: &Connection,
    settings: &HeartbeatSettings,
    items: &[HeartbeatItem],
    now: Timestamp,
) -> Result<HeartbeatOutcome, StoreError> {
    if !inbox::open_of_session(connection, SESSION, 1)?.is_empty() {
        return Ok(HeartbeatOutcome::Nothing);
    }
    let state = load(connection)?;
    let (due, after) = settings.choose(items, &state, now);
    if due.is_empty() {
        save(connection, &after)?;
        return Ok(HeartbeatOutcome::Nothing);
    }
    let budget = settings.config.tokens_per_day;
    let used = settings.tokens_today(connection, now)?;
    if used >= budget {
        return report_budget_spent(connection, settings, now);
    }
    save(connection, &after)?;
    message(settings, &due, budget - used, now).insert(connection)?;
    Ok(HeartbeatOutcome::Asked)
}

/// Informs the chat, once a day, that the tokens of the day are used up.
fn report_budget_spent(
    connection: &Connection,
    settings: &HeartbeatSettings,
    now: Timestamp,
) -> Result<HeartbeatOutcome, StoreError> {
    let today = now.to_zoned(settings.zone.clone()).date().to_string();
    if notes::get(connection, SESSION, "silent", "day")?.is_some_and(|(day, _)| day == today) {
        return Ok(HeartbeatOutcome::Nothing);
    }
    notes::set(connection, SESSION, "silent", "day", &today)?;
    let content = settings.silent.replacen("{}", &settings.config.tokens_per_day.to_string(), 1);
    let session = SessionKey::of_chat(&settings.channel, &settings.chat_id);
    let body = OutboundBody { context: subject(), ..OutboundBody::new(content, session) };
    let (channel, chat_id) = (settings.channel.clone(), settings.chat_id.clone());
    let (turn, slot) = (daoyou_channels::new_id(), OutboxSlot::notice(NoticeKind::Heartbeat));
    OutboundDraft { turn, slot, channel, chat_id, body }.insert(connection)?;
    Ok(HeartbeatOutcome::Silenced)
}

fn message(settings: &HeartbeatSettings, due: &[&HeartbeatItem], tokens: u64, now: Timestamp) -> InboundDraft {
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
    let trust = trust_of(Author::Owner, SenderListing::Owner);
    let content = format!("Heartbeat:\n{}", items.join("\n"));
    let mut message = InboundMessage::text(&settings.channel, &settings.chat_id, SESSION, trust, content);
    (message.received_at, message.session) = (now, Some(SessionKey::from(SESSION)));
    let origin = TurnOrigin { cause: TurnCause::Heartbeat, settings: turn, reply: subject(), ..TurnOrigin::default() };
    InboundDraft::with_origin(message, origin)
}

fn subject() -> OutboundContext {
    OutboundContext { subject: Some("Heartbeat".to_owned()), ..OutboundContext::default() }
}
