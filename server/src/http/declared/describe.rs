//! The OpenAPI description of a declared kind, built in code because the derive macro does not
//! support generic handlers.

use muster_api::kind::Kind;
use muster_api::object::{Draft, Object};
use serde_json::json as value;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Array, Object as Plain, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Content, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{IntoParams as _, PartialSchema, ToSchema};

use super::Declared;
use crate::access;
use crate::auth::needs::EXTENSION;
use crate::http::paging::ListQuery;

type Schemas = Vec<(String, RefOr<Schema>)>;

/// The schemas of a kind: the object, the draft for writes, a page, and all inner schemas.
pub(in crate::http) fn schemas<K: Kind>() -> Schemas {
    let mut schemas = vec![
        (K::name().into_owned(), K::schema()),
        (K::Status::name().into_owned(), K::Status::schema()),
    ];
    K::schemas(&mut schemas);
    K::Status::schemas(&mut schemas);
    <Object<K, K::Status> as ToSchema>::schemas(&mut schemas);
    let named = |suffix: &str| format!("{}{suffix}", K::SCHEMA);
    schemas.push((named(""), <Object<K, K::Status> as PartialSchema>::schema()));
    schemas.push((named("Draft"), <Draft<K> as PartialSchema>::schema()));
    let page = ObjectBuilder::new()
        .property("items", Array::new(Ref::from_schema_name(K::SCHEMA)))
        .required("items")
        .property("next_page_token", text_schema())
        .property("count", Plain::with_type(SchemaType::Type(Type::Integer)))
        .description(Some("One page of a list. The token is absent on the last page, and `count` is absent unless requested. With `fields`, items have only the requested members."));
    schemas.push((named("Page"), page.into()));
    schemas
}

/// The schemas of a kind, and its paths: the collection and one object.
pub(super) fn kind<K: Declared>() -> (Schemas, [Paths; 2]) {
    let mut collection = Paths::new();
    let path = format!("/v1/{}", K::COLLECTION);
    collection.add_path_operation(&path, vec![HttpMethod::Get], list::<K>());
    let mut one = Paths::new();
    let path = format!("/v1/{}/{{name}}", K::COLLECTION);
    one.add_path_operation(&path, vec![HttpMethod::Get], get::<K>());
    one.add_path_operation(&path, vec![HttpMethod::Put], put::<K>());
    one.add_path_operation(&path, vec![HttpMethod::Patch], patch::<K>());
    one.add_path_operation(&path, vec![HttpMethod::Delete], delete::<K>());
    (schemas::<K>(), [collection, one])
}

fn list<K: Kind>() -> Operation {
    let mut operation = begin_operation::<K>(
        "list",
        K::COLLECTION,
        "Lists objects, by name unless another sort is requested",
    );
    for parameter in ListQuery::into_params(|| Some(ParameterIn::Query)) {
        operation = operation.parameter(parameter);
    }
    operation
        .response(
            "200",
            json_answer("One page of the list", &format!("{}Page", K::SCHEMA)),
        )
        .build()
}

fn get<K: Kind>() -> Operation {
    begin_operation::<K>("get", K::KIND, "Returns one object by name or id")
        .parameter(name_parameter())
        .response(
            "200",
            json_answer("The object; its generation is the ETag", K::SCHEMA),
        )
        .response("404", problem_answer("No such object"))
        .build()
}

fn put<K: Kind>() -> Operation {
    begin_operation::<K>(
        "put",
        K::KIND,
        "Creates or replaces an object; idempotent by name",
    )
    .parameter(name_parameter())
    .parameter(header_parameter(
        "If-Match",
        "The ETag of the object to replace",
    ))
    .parameter(header_parameter(
        "If-None-Match",
        "`*`: create only, never replace",
    ))
    .request_body(Some(body(
        "application/json",
        &format!("{}Draft", K::SCHEMA),
    )))
    .response(
        "200",
        json_answer("The object, replaced or already as requested", K::SCHEMA),
    )
    .response("201", json_answer("The object is created", K::SCHEMA))
    .response("412", problem_answer("The precondition failed"))
    .response(
        "422",
        problem_answer("The request is well-formed but invalid; `errors` lists each problem"),
    )
    .build()
}

fn patch<K: Kind>() -> Operation {
    begin_operation::<K>(
        "patch",
        K::KIND,
        "Applies a JSON merge patch (RFC 7396) to labels, annotations and spec",
    )
    .parameter(name_parameter())
    .parameter(header_parameter(
        "If-Match",
        "The ETag of the object to change",
    ))
    .request_body(Some(
        RequestBodyBuilder::new()
            .content(
                "application/merge-patch+json",
                Content::new(Some(any_schema())),
            )
            .required(Some(Required::True))
            .build(),
    ))
    .response(
        "200",
        json_answer("The object, changed or already as requested", K::SCHEMA),
    )
    .response("412", problem_answer("The precondition failed"))
    .response(
        "422",
        problem_answer("The request is well-formed but invalid; `errors` lists each problem"),
    )
    .build()
}

fn delete<K: Kind>() -> Operation {
    begin_operation::<K>(
        "delete",
        K::KIND,
        "Removes an object without references to it",
    )
    .parameter(name_parameter())
    .parameter(header_parameter(
        "If-Match",
        "Required: the ETag of the object to remove",
    ))
    .response(
        "204",
        ResponseBuilder::new()
            .description("The object is removed")
            .build(),
    )
    .response("409", problem_answer("Another object refers to the object"))
    .response("412", problem_answer("The precondition failed"))
    .response("428", problem_answer("If-Match is missing"))
    .build()
}

/// The need of an operation, as [`EXTENSION`].
fn need_of_verb<K: Kind>(verb: &str) -> Extensions {
    let reads = matches!(verb, "list" | "get");
    let verb_needed = match (K::KIND, reads) {
        ("webhook", true) => "webhook.read".to_owned(),
        (_, true) => "fleet.read".to_owned(),
        (kind, false) => format!("{kind}.write"),
    };
    let place = match (access::has_place(K::KIND), verb, reads) {
        _ if K::KIND == "webhook" => "fleet".to_owned(),
        (true, "get" | "put" | "patch" | "delete", _) => format!("{}={{name}}", K::KIND),
        (_, _, true) => "any".to_owned(),
        (_, _, false) => "fleet".to_owned(),
    };
    let need = value!({ "verb": verb_needed, "place": place });
    Extensions::builder().add(EXTENSION, need).build()
}

fn begin_operation<K: Kind>(verb: &str, noun: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new()
        .extensions(Some(need_of_verb::<K>(verb)))
        .operation_id(Some(format!("{verb}_{noun}")))
        .tag(K::COLLECTION)
        .summary(Some(summary))
        .response(
            "400",
            problem_answer("The request is malformed; `errors` names each place"),
        )
        .response(
            "401",
            problem_answer("The credential is missing or invalid"),
        )
        .response(
            "403",
            problem_answer("The caller's role does not allow the request"),
        )
}

fn name_parameter() -> Parameter {
    ParameterBuilder::new()
        .name("name")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("Name or id"))
        .schema(Some(text_schema()))
        .build()
}

fn header_parameter(name: &str, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(text_schema()))
        .build()
}

fn text_schema() -> Schema {
    Schema::Object(Plain::with_type(SchemaType::Type(Type::String)))
}

fn any_schema() -> Schema {
    Schema::Object(Plain::with_type(SchemaType::Type(Type::Object)))
}

fn body(media: &str, schema: &str) -> utoipa::openapi::request_body::RequestBody {
    RequestBodyBuilder::new()
        .content(media, content_of(schema))
        .required(Some(Required::True))
        .build()
}

fn json_answer(description: &str, schema: &str) -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description(description)
        .content("application/json", content_of(schema))
        .build()
}

fn problem_answer(description: &str) -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content_of("Problem"))
        .build()
}

fn content_of(schema: &str) -> Content {
    Content::new(Some(Ref::from_schema_name(schema)))
}
