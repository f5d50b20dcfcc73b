//! Converts errors of the API to Terraform diagnostics, attached to the attribute named by the
//! server's pointer.

use muster_api::client::ClientError;

use crate::contract::Type;
use crate::kinds::Kind;
use crate::messages::{AttributePath, Diagnostic, PathStep, Selector};

/// Returns a diagnostic that stops an apply.
pub(crate) fn error(summary: impl Into<String>, detail: impl Into<String>) -> Diagnostic {
    Diagnostic {
        severity: 1,
        summary: summary.into(),
        detail: detail.into(),
        attribute: None,
    }
}

/// Returns a diagnostic for the operator's attention, before or after an apply.
pub(crate) fn warning(summary: impl Into<String>, detail: impl Into<String>) -> Diagnostic {
    Diagnostic {
        severity: 2,
        summary: summary.into(),
        detail: detail.into(),
        attribute: None,
    }
}

/// Returns the path of a resource's attribute.
pub(crate) fn path(attribute: &str) -> AttributePath {
    AttributePath {
        steps: vec![step(Selector::AttributeName(attribute.into()))],
    }
}

fn step(selector: Selector) -> PathStep {
    PathStep {
        selector: Some(selector),
    }
}

/// Converts an API error to diagnostics: a diagnostic per fault reported by the server, at the
/// fault's attribute.
pub(crate) fn refusal(kind: Option<&Kind>, doing: &str, refused: &ClientError) -> Vec<Diagnostic> {
    let ClientError::Problem(problem) = refused else {
        return vec![error(doing, refused.to_string())];
    };
    let request = problem
        .request_id
        .as_deref()
        .map(|id| format!(" (request {id})"))
        .unwrap_or_default();
    let code = &problem.code;
    if problem.errors.is_empty() {
        return vec![error(
            doing,
            format!("{}\n\n{code}{request}", problem.detail),
        )];
    }
    let fault = |fault: &muster_api::problem::Fault| Diagnostic {
        attribute: kind
            .and_then(|kind| place(kind, &fault.pointer))
            .map(visible),
        ..error(
            doing,
            format!(
                "{}: {}\n\n{}{request}",
                fault.pointer, fault.detail, fault.code
            ),
        )
    };
    problem.errors.iter().map(fault).collect()
}

/// Shortens a path to the resource's own attribute. Terraform finds only the line of such an
/// attribute, and the text of the diagnostic has the full pointer.
fn visible(mut path: AttributePath) -> AttributePath {
    path.steps.truncate(1);
    path
}

/// Returns the place of a pointer into the document (RFC 6901) in the configuration, as far as the
/// types follow the pointer.
fn place(kind: &Kind, pointer: &str) -> Option<AttributePath> {
    if pointer == "/spec/secret" {
        return Some(path("secret"));
    }
    let mut of = kind.shape();
    let mut steps = Vec::new();
    for part in pointer.strip_prefix('/')?.split('/') {
        let part = part.replace("~1", "/").replace("~0", "~");
        let (selector, inner) = match of {
            Type::Object(_) => match of.member(&part) {
                Some(member) => (Selector::AttributeName(part), &member.of),
                None => break,
            },
            Type::List(of) => match part.parse() {
                Ok(at) => (Selector::ElementKeyInt(at), of.as_ref()),
                Err(_) => break,
            },
            Type::Map(of) => (Selector::ElementKeyString(part), of.as_ref()),
            Type::Bool | Type::Number | Type::Text | Type::NumberOrText | Type::Json => break,
        };
        steps.push(step(selector));
        of = inner;
    }
    (!steps.is_empty()).then_some(AttributePath { steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::resource;

    fn shown(kind: &str, pointer: &str) -> String {
        let path = place(resource(kind).unwrap(), pointer);
        let word = |step: PathStep| match step.selector.unwrap() {
            Selector::AttributeName(name) => format!(".{name}"),
            Selector::ElementKeyString(key) => format!("[{key:?}]"),
            Selector::ElementKeyInt(at) => format!("[{at}]"),
        };
        path.map(|path| path.steps.into_iter().map(word).collect())
            .unwrap_or_default()
    }

    #[test]
    fn a_pointer_becomes_a_path_as_far_as_it_goes() {
        assert_eq!(
            shown("muster_node", "/spec/power/redfish/bmc/credential"),
            ".spec.power.redfish.bmc.credential"
        );
        assert_eq!(
            shown("muster_node", "/spec/macs/1/address"),
            ".spec.macs[1].address"
        );
        assert_eq!(shown("muster_rack", "/labels/a~1b"), ".labels[\"a/b\"]");
        assert_eq!(shown("muster_rack", "/spec/colour"), ".spec");
        assert_eq!(shown("muster_credential", "/spec/secret"), ".secret");
        assert_eq!(shown("muster_rack", "name"), "");
    }
}
