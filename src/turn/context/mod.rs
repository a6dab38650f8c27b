//! What the model is given: the system prompt, the history, what is remembered, and the message.

pub mod attachments;
pub mod compaction;
pub mod conversation_context;
pub mod images;
pub mod private_memory;
pub mod relevant_memories;
pub mod system_prompt;
pub mod user_message;
pub mod window;
