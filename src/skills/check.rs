//! Checks the skills in a folder, for `skills check`.

use std::io;
use std::path::Path;

use super::catalog::SkillCatalog;
use super::discovery::{SkillSource, SkillsConfig};
use super::requirements::SkillHost;
use super::skill::{Skill, SkillList, SkillProblem};

/// The most characters of a description (Agent Skills).
const MAX_DESCRIPTION: usize = 1_024;

/// Returns what is wrong with the skills below `folder`, or with the one that it is itself; paths are absolute.
///
/// # Errors
/// `folder` is no folder that can be read.
pub fn check_skills(folder: &Path) -> io::Result<Vec<SkillProblem>> {
    std::fs::read_dir(folder)?;
    let source = SkillSource::named("checked", folder.to_owned());
    // What this machine lacks is no fault of a skill.
    let host = SkillHost::new(Vec::new(), |_| false, "");
    let list = SkillCatalog::new(&SkillsConfig::default(), vec![source], &[], host).look();
    let SkillList { skills, problems, shadowed } = &*list;
    let mut problems = problems.clone();
    problems.extend(skills.iter().flat_map(problems_of));
    for skill in shadowed {
        let problem = format!("has the name {}, as {} has: only the first is used", skill.name, skill.by);
        problems.push(SkillProblem::new(skill.path.as_str(), problem));
    }
    if skills.is_empty() && problems.is_empty() {
        problems.push(SkillProblem::new(folder.display().to_string(), "has no skill: no NAME/SKILL.md is in it"));
    }
    problems.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    Ok(problems)
}

/// Returns what is wrong with a skill that can be used.
fn problems_of(skill: &Skill) -> Vec<SkillProblem> {
    let mut problems = Vec::new();
    let length = skill.manifest.description_length;
    if length > MAX_DESCRIPTION {
        let problem =
            format!("its description has {length} characters, more than the {MAX_DESCRIPTION} that are usual");
        problems.push(SkillProblem::new(skill.path(), problem));
    }
    if skill.manifest.is_empty {
        problems.push(SkillProblem::new(skill.path(), "has no instructions"));
    }
    problems
}
