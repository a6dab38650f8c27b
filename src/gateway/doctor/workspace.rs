//! The files of the workspace that the gateway itself reads, and the folders in it that are private.

use std::path::Path;

use daoyou_channels::Finding;

use crate::gateway::runtime::PRIVATE;
use crate::session::commands::SkillFolder;
use crate::turn::context::system_prompt::SystemPrompt;

const NAME: &str = "workspace files";

/// What the gateway leaves out, each with the reason; nothing where there is no workspace yet.
pub fn unread(workspace: &Path) -> Vec<Finding> {
    let closed = PRIVATE.covered_for_all().hidden;
    let prompt = SystemPrompt::new(workspace, "", &closed).map(|prompt| prompt.faults());
    let skills = SkillFolder::open(workspace, &closed).map(|skills| skills.list().1);
    let left_out = prompt.into_iter().chain(skills).flatten().map(|error| {
        let mend = format!("put a plain text file there: ls -l {}", workspace.display());
        Finding::warn(NAME, format!("it is not read: {error}"), mend)
    });
    let private = PRIVATE.faults(workspace).unwrap_or_default().into_iter();
    let private = private.map(|fault| {
        Finding::fail(
            "private folders",
            format!("nothing is kept there: {fault}"),
            format!("ls -ld {}", workspace.display()),
        )
    });
    left_out.chain(private).collect()
}
