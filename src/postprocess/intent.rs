//! Determines the intent of a question by rules.

use serde::Serialize;

use super::phrases::has_word_start;

/// The intent of a question. Its name is in a result's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    FindDefinition,
    UnderstandStructure,
    FindUsage,
    DebugError,
    General,
}

/// The confidence from which the rules decide alone, without a model.
pub const SURE_CONFIDENCE: f64 = 0.7;
/// The confidence if a rule fits, and if none does.
const RULE_CONFIDENCE: f64 = 0.9;
const DEFAULT_CONFIDENCE: f64 = 0.5;

/// The phrases of each intent. The first rule that fits decides.
const RULES: &[(Intent, &[&str])] = &[
    (Intent::FindDefinition, &["定义", "是什么", "what is", "define", "definition"]),
    (Intent::UnderstandStructure, &["结构", "架构", "structure", "architecture"]),
    (Intent::FindUsage, &["怎么用", "如何使用", "how to use", "usage"]),
    (Intent::DebugError, &["错误", "报错", "error", "bug", "fix"]),
];

impl Intent {
    /// Returns the intent of a question, and the confidence in it (0 to 1).
    pub fn of(question: &str) -> (Self, f64) {
        let question = question.to_lowercase();
        let fits = |words: &&[&str]| words.iter().any(|word| has_word_start(&question, word));
        RULES
            .iter()
            .find(|(_, words)| fits(words))
            .map_or((Self::General, DEFAULT_CONFIDENCE), |(intent, _)| (*intent, RULE_CONFIDENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        for (question, intent, confidence) in [
            ("What is a lane?", Intent::FindDefinition, 0.9),
            ("Where do they define the limits", Intent::FindDefinition, 0.9),
            ("会话的定义在哪", Intent::FindDefinition, 0.9),
            ("WhatIs 是什么", Intent::FindDefinition, 0.9),
            ("what is the structure of this error", Intent::FindDefinition, 0.9),
            ("Explain the architecture", Intent::UnderstandStructure, 0.9),
            ("项目结构", Intent::UnderstandStructure, 0.9),
            ("How to use the client?", Intent::FindUsage, 0.9),
            ("这个函数怎么用？", Intent::FindUsage, 0.9),
            ("why these errors", Intent::DebugError, 0.9),
            ("构建报错了", Intent::DebugError, 0.9),
            ("a prefix of terrors", Intent::General, 0.5),
            ("Which port does it listen on?", Intent::General, 0.5),
            ("", Intent::General, 0.5),
        ] {
            assert_eq!(Intent::of(question), (intent, confidence), "{question}");
        }
    }
}
