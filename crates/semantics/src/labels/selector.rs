//! Label selectors: conditions on an object's labels.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::labels::requirement::{Operator, Requirement, Spelling};
use crate::labels::{Labels, SelectorError, parse};

/// A compiled label selector (`labels.Selector`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// `None` is the selector that matches nothing. An empty list matches everything.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Compiles a selector of the API (`metav1.LabelSelectorAsSelector`): an absent one matches
    /// nothing, an empty one everything.
    ///
    /// # Errors
    ///
    /// The errors of the first invalid requirement; labels come before expressions.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            let values = Some(vec![value.clone()]);
            let requirement = Requirement::checked("", key.clone(), Operator::In, Spelling::Equals, values)
                .map_err(|errors| errors.at("matchLabels"))?;
            requirements.push(requirement);
        }
        let expressions = selector.match_expressions.iter().flatten().enumerate();
        for (index, expression) in expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                unknown => {
                    return Err(SelectorError::UnknownOperator { index, operator: unknown.to_owned() });
                }
            };
            // Kubernetes copies the values here, and a copy of an empty list is nil.
            let values = expression.values.as_deref().filter(|v| !v.is_empty());
            let requirement = Requirement::checked_at("", &expression.key, operator, values)
                .map_err(|errors| errors.at(&format!("matchExpressions[{index}]")))?;
            requirements.push(requirement);
        }
        Ok(Self::of(requirements))
    }

    /// The selector that matches objects with all of these labels (`labels.SelectorFromSet`).
    /// Nothing is validated. An empty set matches everything.
    #[must_use]
    pub fn from_set(labels: &Labels) -> Self {
        let requirement = |(k, v): (&String, &String)| Requirement::equals(k.clone(), v.clone());
        Self::of(labels.iter().map(requirement).collect())
    }

    /// Parses a selector as for `kubectl -l`, such as `a=b,c!=d,e in (x,y),!f`
    /// (`labels.Parse`).
    ///
    /// # Errors
    ///
    /// The first error, in Kubernetes' wording.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::requirements(text).map(Self::of).map_err(SelectorError::Syntax)
    }

    /// The selector without requirements (`labels.Everything`).
    #[must_use]
    pub fn everything() -> Self {
        Self::of(Vec::new())
    }

    /// The selector that matches no object, even if requirements are added (`labels.Nothing`).
    #[must_use]
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Requirements are sorted by key. The sort is stable, as is Go's for a small number of
    /// requirements.
    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Self { requirements: Some(requirements) }
    }

    /// Whether the labels satisfy every requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|r| r.matches(labels)))
    }

    /// Whether everything matches because there is no requirement (`labels.Selector.Empty`).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether this is [`Selector::nothing`] (`labels.MatchesNothing`). Requirements that
    /// contradict each other do not count.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// Adds a requirement. [`Selector::nothing`] does not change.
    pub fn add(&mut self, requirement: Requirement) {
        if let Some(requirements) = &mut self.requirements {
            let at = requirements.partition_point(|r| r.key() <= requirement.key());
            requirements.insert(at, requirement);
        }
    }

    /// The requirements, sorted by key. [`Selector::nothing`] has none.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Selector {
    /// As `labels.Selector.String` prints it; everything and nothing both print as an empty string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}
