//! `remember`: stores memories for later conversations. `forget`: removes a memory for good.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::{changeable_memory, entry_line, is_shared, owner, turn_source};
use crate::memory::{
    MemoryEntry, MemoryError, MemoryKind, MemoryOrigin, MemoryOwner, MemoryService, MemorySource, NewMemoryEntry,
    RememberPlan, apply_plan, forget, plan, validate_entry, written,
};
use crate::store::{Connection, Durability, StoreError, memories};
use crate::tools::{ReplayPolicy, RowEffect, ToolContext, ToolDefinition, ToolEffect, ToolOutcome, ToolResult};

/// The confidence in a memory that was stated.
const STATED_CONFIDENCE: f64 = 0.8;
/// The maximum number of tags of a case, and the longest tag, in characters.
const MAX_TAGS: usize = 10;
const TAG_CHARS: usize = 40;

#[derive(Clone, Deserialize, JsonSchema)]
pub struct RememberArgs {
    /// One clear sentence; of a case: problem, line break, solution.
    content: String,
    kind: Option<NewMemoryKindArg>,
    /// Of a preference; title of a case.
    key: Option<String>,
    /// Id of a memory that is wrong.
    replaces: Option<i64>,
    /// Of a case.
    tags: Option<Vec<String>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum NewMemoryKindArg {
    Fact,
    Preference,
    Case,
}

impl From<NewMemoryKindArg> for MemoryKind {
    fn from(kind: NewMemoryKindArg) -> Self {
        match kind {
            NewMemoryKindArg::Fact => Self::Fact,
            NewMemoryKindArg::Preference => Self::Preference,
            NewMemoryKindArg::Case => Self::Case,
        }
    }
}

/// Returns the definition of the tool `remember`.
pub fn definition() -> ToolDefinition {
    let description = "Remember what will matter in later conversations.";
    ToolDefinition::changing::<RememberArgs>("remember", description, ReplayPolicy::Atomic)
}

/// Plans a new memory, or a replacement of one, which the commit of the call's result writes.
///
/// # Errors
/// The sender has no memory, the memory is invalid, or the store cannot be written.
pub async fn remember(
    service: Arc<MemoryService>,
    args: RememberArgs,
    context: &ToolContext,
) -> Result<ToolOutcome, MemoryError> {
    let owner = owner(&service, context)?;
    let is_shared = is_shared(&service, context).await?;
    let (of_write, source) = (service.clone(), turn_source(context));
    // This is a write, since it reserves an id; the memory itself is committed with the result.
    let reserve = move |connection: &Connection| {
        let prepared = prepare(connection, &of_write, args.clone(), owner.clone(), source.clone());
        MemoryError::separate_store_errors(prepared)
    };
    let (plan, id) = service.store.write(Durability::Logged, reserve).await??;
    // In a shared conversation, the text of known memories is not repeated.
    let line_of = |entry: &MemoryEntry| entry_line(entry.kind, &entry.name, &entry.text);
    let new = entry_line(plan.entry.kind, &plan.entry.name, &plan.entry.text);
    let text = match (&plan.known, &plan.replaces, is_shared) {
        (Some(known), _, false) => format!("Already known (id {id}): {}", line_of(known)),
        (Some(_), _, true) => format!("Already known (id {id}): {new}"),
        (None, Some(old), false) => format!("Replaced: {} (id {}) by {new} (id {id})", line_of(old), old.id),
        (None, _, _) => format!("Remembered (id {id}): {new}"),
    };
    let of_commit = service.clone();
    let write = move |connection: &Connection| write_planned(connection, &service, &plan, id);
    let rows = RowEffect::new(write, move || of_commit.notify_changes());
    Ok(ToolOutcome { result: ToolResult::ok(text), effects: vec![ToolEffect::Rows(rows)] })
}

/// Plans the changes, and reserves an id for them.
fn prepare(
    connection: &Connection,
    service: &MemoryService,
    args: RememberArgs,
    owner: MemoryOwner,
    source: MemorySource,
) -> Result<(RememberPlan, i64), MemoryError> {
    let instead: Option<MemoryEntry> = args.replaces.map(|id| changeable_memory(connection, &owner, id)).transpose()?;
    if let Some(old) = instead.as_ref().filter(|old| matches!(old.kind, MemoryKind::Task | MemoryKind::Summary)) {
        let kind = old.kind.as_str();
        return Err(MemoryError::Wrong(format!("a {kind} cannot be replaced; remember a fact without \"replaces\"")));
    }
    // A memory that all people share keeps its owner.
    let owner = instead.as_ref().map_or(owner, |old| old.owner.clone());
    let kind = args.kind.map(MemoryKind::from).or(instead.as_ref().map(|old| old.kind));
    // A key without tags means a preference.
    let kind = kind.unwrap_or(if args.key.is_some() && args.tags.is_none() {
        MemoryKind::Preference
    } else {
        MemoryKind::Fact
    });
    let name = args.key.or(instead.as_ref().map(|old| old.name.clone())).unwrap_or_default();
    // Some models copy the context that the gateway appends to a message.
    let text = written(&args.content);
    let mut new = NewMemoryEntry {
        name,
        source: Some(source),
        confidence: STATED_CONFIDENCE,
        ..NewMemoryEntry::new(owner, kind, text, MemoryOrigin::Stated)
    };
    if kind == MemoryKind::Case {
        new.detail = case_detail(text, args.tags.unwrap_or_default());
    }
    service.redact_secrets(&mut new);
    let plan = plan(connection, validate_entry(&new)?, instead)?;
    let id = match &plan.known {
        Some(known) => known.id,
        None => memories::reserve_id(connection)?,
    };
    Ok((plan, id))
}

fn case_detail(content: &str, tags: Vec<String>) -> Value {
    let (problem, solution) = content.trim().split_once('\n').unwrap_or((content.trim(), ""));
    let tags = tags.into_iter().map(|tag| tag.trim().chars().take(TAG_CHARS).collect::<String>());
    let tags: Vec<String> = tags.filter(|tag| !tag.is_empty()).take(MAX_TAGS).collect();
    json!({"problem": problem.trim(), "solution": solution.trim(), "tags": tags})
}

/// Writes a memory in the commit of its call's result. `id` is the id of the known memory, or the reserved id of a new one.
fn write_planned(
    connection: &Connection,
    service: &MemoryService,
    planned: &RememberPlan,
    id: i64,
) -> Result<(), StoreError> {
    // The plan is made again: another call of the same response may have stored the memory, or it was forgotten meanwhile.
    let now = plan(connection, planned.entry.clone(), planned.replaces.clone())?;
    // The id of a known memory is taken, even if that memory was replaced meanwhile.
    let reserved = planned.known.is_none().then_some(id);
    apply_plan(connection, &now, reserved, &service.settings.config).map(|_| ())
}

#[derive(Deserialize, JsonSchema)]
pub struct ForgetArgs {
    /// As recall shows it.
    id: i64,
}

/// Returns the definition of the tool `forget`.
pub fn forget_definition() -> ToolDefinition {
    let description = "Forget a memory for good, when the user wants it gone.";
    ToolDefinition {
        // Text of a web page must not choose the memory to forget.
        literal_arguments: &["id"],
        ..ToolDefinition::changing::<ForgetArgs>("forget", description, ReplayPolicy::Atomic)
    }
}

/// Plans the deletion of a memory, which the commit of the call's result carries out.
///
/// # Errors
/// The sender has no memory, there is no such memory, or the store cannot be read.
pub async fn plan_forget(
    service: Arc<MemoryService>,
    args: ForgetArgs,
    context: &ToolContext,
) -> Result<ToolOutcome, MemoryError> {
    let owner = owner(&service, context)?;
    let find = move |connection: &Connection| {
        MemoryError::separate_store_errors(changeable_memory(connection, &owner, args.id))
    };
    let id = service.store.read(find).await??.id;
    // The answer must not repeat the memory, since the log would then contain it again.
    let text = format!("Forgotten for good (id {id}). Do not repeat what it was.");
    let write = move |connection: &Connection| forget(connection, &[id]).map(|_| ());
    let rows = RowEffect::new(write, move || service.notify_changes());
    Ok(ToolOutcome { result: ToolResult::ok(text), effects: vec![ToolEffect::Rows(rows)] })
}
