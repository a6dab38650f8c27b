//! The input of the model: the system prompt, the history, the memories, and the message.

pub mod attachments;
pub mod compaction;
pub mod conversation_context;
pub mod images;
pub mod private_memory;
pub mod relevant_memories;
pub mod system_prompt;
pub mod user_message;
pub mod window;
