//! Finds skills by the words of a query in their names, triggers and descriptions.

use std::collections::{HashMap, HashSet};

use super::skill::{Skill, SkillList};
use crate::text::{index_terms, query_terms};

/// The weight of a word in the name or a trigger, relative to a word in the description.
const NAME_WEIGHT: f64 = 3.0;
const TRIGGER_WEIGHT: f64 = 2.0;

/// Returns the skills that match the query best, best first, at most `limit`. Includes skills that cannot be used, but not those
/// that the configuration disables.
pub fn find_skills<'a>(list: &'a SkillList, query: &str, limit: usize) -> Vec<&'a Skill> {
    let wanted = query_terms(&spaced(query));
    let skills: Vec<&Skill> = list.skills.iter().filter(|skill| !skill.is_disabled).collect();
    let terms: Vec<SkillTerms> = skills.iter().map(|skill| SkillTerms::of(skill)).collect();
    let mut known_by: HashMap<&str, usize> = HashMap::new();
    for term in &wanted {
        known_by.insert(&term.text, terms.iter().filter(|terms| terms.weight(&term.text) > 0.0).count());
    }
    let score = |terms: &SkillTerms| -> f64 {
        let scores = wanted.iter().map(|term| {
            let known_by = known_by.get(term.text.as_str()).copied().unwrap_or_default().max(1);
            let rarity = (1.0 + skills.len() as f64 / known_by as f64).ln();
            term.weight * rarity * terms.weight(&term.text)
        });
        scores.sum()
    };
    let scored = skills.iter().zip(&terms).map(|(skill, terms)| (score(terms), *skill));
    let mut found: Vec<(f64, &Skill)> = scored.filter(|(score, _)| *score > 0.0).collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.into_iter().take(limit).map(|(_, skill)| skill).collect()
}

/// The words of a skill, by the field that contains them.
struct SkillTerms {
    name: HashSet<String>,
    triggers: HashSet<String>,
    description: HashSet<String>,
}

impl SkillTerms {
    fn of(skill: &Skill) -> Self {
        let terms = |text: &str| index_terms(&spaced(text)).into_iter().collect();
        Self {
            name: terms(skill.name()),
            triggers: terms(&skill.manifest.triggers.join(", ")),
            description: terms(&skill.manifest.description),
        }
    }

    fn weight(&self, term: &str) -> f64 {
        let part = |terms: &HashSet<String>, weight: f64| if terms.contains(term) { weight } else { 0.0 };
        part(&self.name, NAME_WEIGHT) + part(&self.triggers, TRIGGER_WEIGHT) + part(&self.description, 1.0)
    }
}

/// Separates the words of names such as `pdf-forms` and `pdf_forms`.
fn spaced(text: &str) -> String {
    text.replace(['-', '_'], " ")
}
