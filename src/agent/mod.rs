//! The agent: takes accepted messages in order, runs their turns, and writes the replies.
//!
//! `agent_loop` is the single consumer of inbound messages; `turn_runner` runs one turn of a session from its start commit to its
//! end commit; `conversation_turn` is the part between these commits.

mod config;
mod workflow_script;
mod workspace;

mod agent_choice;
mod agent_loop;
mod turn_runner;

mod approval_gate;
mod ask_user;
mod conversation_turn;
mod parking;
mod person_requests;
mod prompt_preview;
mod store_journal;
mod turn_agent;
mod turn_start;

mod turn_end;

mod sub_agents;

pub use agent_loop::{AgentLoop, LivenessProbe};
pub use approval_gate::ApprovalGate;
pub use ask_user::AskUserTool;
pub use config::{AgentConfig, QueueMode, SpawnConfig};
pub use conversation_turn::ConversationDeps;
pub use parking::Parking;
pub use prompt_preview::{PromptPart, PromptPreview};
pub use store_journal::commit_effects;
pub use sub_agents::SpawnTool;
pub use turn_agent::TurnTools;
pub use turn_runner::TurnRunner;
pub use turn_start::{RunningTurns, TurnStarter};
pub use workspace::{is_prepared, prepare as prepare_workspace};
