//! Skills: folders with a `SKILL.md`. The model always sees a skill's name and description, and loads its instructions when it
//! needs them.

mod catalog;
#[cfg(test)]
mod catalog_tests;
mod discovery;
mod frontmatter;
#[cfg(test)]
mod frontmatter_tests;
mod install;
mod loading;
mod prompt;
#[cfg(test)]
mod prompt_tests;
mod requirements;
mod skill;
mod tools;

pub use catalog::{BUILT_IN_SKILLS, BuiltInSkill, SkillCatalog, problems_of_all};
pub use discovery::{INSTALL_FOLDER, SkillFile, SkillSource, SkillsConfig, SourceScan};
pub use frontmatter::{SkillManifest, SkillManifestError, parse_manifest};
pub use install::{
    InstalledSkills, ReviewedFileKind, SkillCandidate, SkillPackage, SkillPins, SkillReview, check_skills,
};
pub use loading::render_skill;
pub use prompt::{TokenCounter, always_section, is_section_complete, skill_names, skill_section};
pub use requirements::{InstallHint, SkillHost, SkillRequirements};
pub use skill::{ShadowedSkill, Skill, SkillList, SkillLocation, SkillProblem};
pub use tools::{FIND_SKILLS, LOAD_SKILL, SkillTool};
