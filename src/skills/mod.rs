//! Skills: folders with a `SKILL.md`, whose name and description the model always sees, and whose instructions it loads
//! when it needs them.

mod catalog;
mod discovery;
mod frontmatter;
#[cfg(test)]
mod frontmatter_tests;
mod requirements;
mod skill;

pub use catalog::{BUILT_IN_SKILLS, BuiltInSkill, SkillCatalog};
pub use discovery::{SkillSource, SkillsConfig};
pub use frontmatter::{ManifestFault, SkillManifest, parse_manifest};
pub use requirements::{InstallHint, SkillHost, SkillRequirements};
pub use skill::{ShadowedSkill, Skill, SkillList, SkillLocation, SkillProblem};
