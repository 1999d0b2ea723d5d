//! Documents to objects: splits lists into items and keeps each wanted object once.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use stead_model::{ObjectText, TextPart};

use crate::json::{self, NotJson, Scanner};
use crate::write::{END, FORMAT, START};
use crate::{Dump, DumpError, Item, ItemSource, KindFilter, describe, yaml};

/// Where a text comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file that the user named: everything in it has to be an object.
    Named,
    /// A file in a directory or an archive: a document that is not an object is skipped.
    Found,
}

/// Identifies an object. The order is the order of a dump's items.
#[derive(PartialEq, Eq)]
struct Identity {
    group: Arc<str>,
    kind: Arc<str>,
    namespace: Arc<str>,
    name: Box<str>,
}

impl Ord for Identity {
    fn cmp(&self, other: &Identity) -> Ordering {
        // Most are the same text in memory.
        let shared = |one: &Arc<str>, other: &Arc<str>| match Arc::ptr_eq(one, other) {
            true => Ordering::Equal,
            false => one.cmp(other),
        };
        shared(&self.group, &other.group)
            .then_with(|| shared(&self.kind, &other.kind))
            .then_with(|| shared(&self.namespace, &other.namespace))
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Identity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The `apiVersion` and `kind` of a typed list's items, which omit them.
#[derive(Clone, Copy)]
struct ListOf<'a> {
    version: &'a str,
    kind: &'a str,
}

pub(crate) struct Collector<'a> {
    pub(crate) wanted: KindFilter<'a>,
    pub(crate) warnings: Vec<String>,
    items: BTreeMap<Identity, Item>,
    kinds: BTreeSet<String>,
    /// Names that many objects have.
    shared: BTreeSet<Arc<str>>,
    /// Dumps of `stead dump` whose last line was not read yet.
    open_dumps: BTreeSet<Arc<str>>,
    taken: Option<String>,
    kubernetes: Option<String>,
}

/// A text while its objects are collected.
#[derive(Clone, Copy)]
struct Text<'a> {
    file: &'a Arc<str>,
    whole: &'a Arc<String>,
    /// Where its first document starts: after a byte order mark.
    start: usize,
    /// How many lists the present object is in.
    depth: usize,
}

/// How deeply lists may be nested. kubectl prints lists of objects, some tools lists of these.
const MAX_LISTS: usize = 4;

/// The parts of an object that tell what it is.
#[derive(Default)]
struct Header {
    version: Option<Range<usize>>,
    kind: Option<Range<usize>>,
    metadata: Option<Metadata>,
    items: Option<ListItems>,
}

/// The parts of an object's metadata.
struct Metadata {
    part: Range<usize>,
    name: Option<Range<usize>>,
    namespace: Option<Range<usize>>,
    resource_version: Option<Range<usize>>,
}

impl Metadata {
    /// Goes past the metadata of an object.
    fn read(scanner: &mut Scanner<'_>) -> Result<Metadata, NotJson> {
        let is_object = scanner.peek() == Some(b'{');
        let mut metadata =
            Metadata { part: scanner.position()..0, name: None, namespace: None, resource_version: None };
        if is_object {
            scanner.object(|scanner, key| {
                let part = scanner.value()?;
                match key {
                    "name" => metadata.name = Some(part),
                    "namespace" => metadata.namespace = Some(part),
                    "resourceVersion" => metadata.resource_version = Some(part),
                    _ => {}
                }
                Ok(())
            })?;
        } else {
            scanner.value()?;
        }
        metadata.part.end = scanner.position();
        Ok(metadata)
    }
}

enum ListItems {
    Items(Vec<Part>),
    /// A list in a list, which is split when it turns out to be one.
    Unsplit(Range<usize>),
    NotAList(Range<usize>),
}

/// A document of a text, or an item of a list.
enum Part {
    Object(Range<usize>, Header),
    Items(Range<usize>, Vec<Part>),
    Other(Range<usize>),
}

impl Part {
    fn range(&self) -> &Range<usize> {
        let (Part::Object(range, _) | Part::Items(range, _) | Part::Other(range)) = self;
        range
    }
}

impl<'a> Collector<'a> {
    pub(crate) fn new(wanted: KindFilter<'a>) -> Self {
        Self {
            wanted,
            warnings: Vec::new(),
            items: BTreeMap::new(),
            kinds: BTreeSet::new(),
            shared: BTreeSet::new(),
            open_dumps: BTreeSet::new(),
            taken: None,
            kubernetes: None,
        }
    }

    pub(crate) fn finish(self) -> Dump {
        Dump {
            items: self.items.into_values().collect(),
            kinds: self.kinds,
            warnings: self.warnings,
            taken: self.taken,
            kubernetes: self.kubernetes,
        }
    }

    /// Adds the objects of one text. Returns an error for each document that is not a Kubernetes
    /// object, where such documents are allowed.
    pub(crate) fn text(
        &mut self,
        file: &Arc<str>,
        whole: &Arc<String>,
        origin: Origin,
    ) -> Result<Vec<DumpError>, DumpError> {
        let mut found = Found::new(origin);
        if let Some(documents) = without_logs(whole) {
            let whole = &Arc::new(documents);
            self.documents(Text { file, whole, start: 0, depth: 0 }, 1, &mut found)?;
            return Ok(found.not_objects);
        }
        let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
        let start = whole.len() - text.len();
        if is_json(text) {
            self.documents(Text { file, whole, start, depth: 0 }, 1, &mut found)?;
        } else {
            let error = |document, source| DumpError::Yaml { file: file.to_string(), document, source };
            yaml::documents(text, error, |document, json| {
                self.documents(Text { file, whole: &Arc::new(json), start: 0, depth: 0 }, document, &mut found)
            })?;
        }
        if found.documents == 0 {
            let empty = DumpError::Empty { file: file.to_string() };
            match origin {
                Origin::Named => return Err(empty),
                Origin::Found => found.not_objects.push(empty),
            }
        }
        Ok(found.not_objects)
    }

    /// Adds a pod of which only the description is there.
    pub(crate) fn described(&mut self, file: &str, text: &str) -> Result<bool, DumpError> {
        let Some(pod) = describe::pod(text) else { return Ok(false) };
        self.constructed(file, vec![pod])?;
        Ok(true)
    }

    /// Adds objects that were made from text. One that was read as YAML or JSON says more.
    pub(crate) fn constructed(&mut self, file: &str, objects: Vec<Value>) -> Result<(), DumpError> {
        let file = Arc::from(file);
        for object in objects {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let kind = object["kind"].as_str().unwrap_or_default();
            let (kind, namespace) = (self.share(kind), self.share(&of("namespace")));
            let identity = Identity { group: self.share(""), kind, namespace, name: of("name").into() };
            if !self.items.contains_key(&identity) {
                let whole = &Arc::new(object.to_string());
                self.documents(Text { file: &file, whole, start: 0, depth: 0 }, 1, &mut Found::new(Origin::Named))?;
            }
        }
        Ok(())
    }

    /// Whether pods are wanted, and this one was not found.
    pub(crate) fn lacks_pod(&mut self, namespace: &str, name: &str) -> bool {
        let identity = Identity {
            group: self.share(""),
            kind: self.share("Pod"),
            namespace: self.share(namespace),
            name: name.into(),
        };
        (self.wanted)("v1", "Pod") && !self.items.contains_key(&identity)
    }

    /// Adds the documents of a JSON text; `first` is the number of its first document.
    fn documents(&mut self, text: Text<'_>, first: usize, found: &mut Found) -> Result<(), DumpError> {
        let mut scanner = Scanner::new(text.whole, text.start);
        for number in first.. {
            let at = ItemSource { file: Arc::clone(text.file), document: number, item: None };
            let document = match scanner.peek() {
                None => break,
                Some(_) => part(&mut scanner).map_err(|NotJson| text.json_error(number))?,
            };
            if matches!(&document, Part::Other(part) if &text.whole[part.clone()] == "null") {
                continue;
            }
            found.documents += 1;
            if found.origin == Origin::Found
                && let Some(error) = not_an_object(&document, text, &at)
            {
                found.not_objects.push(error);
                continue;
            }
            self.document(document, text, &at)?;
        }
        Ok(())
    }

    fn document(&mut self, document: Part, text: Text<'_>, at: &ItemSource) -> Result<(), DumpError> {
        match document {
            // The output of `jq .items`.
            Part::Items(_, items) => self.items(items, text, at, None),
            Part::Object(part, header) => self.object(part, header, text, at, None),
            Part::Other(part) => Err(text.not_an_object(&part, at)),
        }
    }

    fn items(
        &mut self,
        items: Vec<Part>,
        text: Text<'_>,
        list: &ItemSource,
        of: Option<ListOf<'_>>,
    ) -> Result<(), DumpError> {
        for (index, part) in items.into_iter().enumerate() {
            let at = ItemSource { item: Some(index + 1), ..list.clone() };
            match part {
                Part::Object(part, header) => self.object(part, header, text, &at, of)?,
                other => return Err(text.not_an_object(other.range(), &at)),
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        part: Range<usize>,
        header: Header,
        text: Text<'_>,
        at: &ItemSource,
        of: Option<ListOf<'_>>,
    ) -> Result<(), DumpError> {
        let version = text.string(header.version.as_ref(), "apiVersion", at)?;
        let kind = text.string(header.kind.as_ref(), "kind", at)?;
        let kind = kind.or(of.map(|of| of.kind.into())).ok_or_else(|| missing(at, "kind"))?;
        let version = version.or(of.map(|of| of.version.into())).ok_or_else(|| missing(at, "apiVersion"))?;
        if version.split_once('/').is_some_and(|(group, _)| group == "dump.stead.dev") {
            return self.own_line(&text.whole[part], &kind, at);
        }
        if self.is_list(&header, &version, &kind) {
            return self.list(header, &version, &kind, text, at);
        }
        if !(self.wanted)(&version, &kind) {
            return Ok(());
        }
        let (name, namespace, resource_version) = metadata(&header, text, at)?;
        let identity = Identity {
            group: self.share(version.split_once('/').map_or("", |(group, _)| group)),
            kind: self.share(&kind),
            namespace: self.share(&namespace),
            name: name.into(),
        };
        let object = ObjectText {
            api_version: self.share(&version),
            kind: Arc::clone(&identity.kind),
            namespace: Arc::clone(&identity.namespace),
            name: identity.name.clone(),
            text: TextPart::new(text.whole, part).ok_or_else(|| text.json_error(at.document))?,
        };
        self.add(identity, Item { object, resource_version, source: at.clone() });
        Ok(())
    }

    /// The first or the last line of a dump that `stead dump` wrote.
    fn own_line(&mut self, line: &str, kind: &str, at: &ItemSource) -> Result<(), DumpError> {
        let line: Value = serde_json::from_str(line).map_err(|source| DumpError::Json {
            file: at.file.to_string(),
            document: at.document,
            source,
        })?;
        let text = |field: &str| line[field].as_str().map(str::to_owned);
        match kind {
            START => {
                let format = line["format"].as_u64().unwrap_or(u64::MAX);
                if format > FORMAT {
                    let (file, tool) = (at.file.to_string(), text("tool").unwrap_or_else(|| "unknown".to_owned()));
                    return Err(DumpError::NewerFormat { file, format, tool });
                }
                self.open_dumps.insert(Arc::clone(&at.file));
                // RFC 3339 in UTC: the later one is the greater text.
                let taken = text("taken");
                if taken >= self.taken {
                    (self.taken, self.kubernetes) = (taken, text("kubernetes"));
                }
            }
            END => {
                self.open_dumps.remove(&at.file);
                let kinds = line["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str);
                self.kinds.extend(kinds.map(str::to_owned));
                for unread in line["unread"].as_array().into_iter().flatten() {
                    let (kind, reason) = (unread["kind"].as_str(), unread["reason"].as_str());
                    let (kind, reason) = (kind.unwrap_or_default(), reason.unwrap_or_default());
                    self.warnings.push(format!("the dump has no {kind}: {reason}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An error if a dump that `stead dump` wrote has no last line.
    pub(crate) fn check_ends(&self) -> Result<(), DumpError> {
        match self.open_dumps.first() {
            Some(file) => Err(DumpError::Truncated { file: file.to_string() }),
            None => Ok(()),
        }
    }

    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.shared.get(text) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = text.into();
        self.shared.insert(Arc::clone(&shared));
        shared
    }

    /// Whether an object is a list. A kind can end in `List` without being one; a list has `items`,
    /// and a list of a wanted kind must have them.
    fn is_list(&self, header: &Header, version: &str, kind: &str) -> bool {
        kind.strip_suffix("List")
            .is_some_and(|item| item.is_empty() || header.items.is_some() || (self.wanted)(version, item))
    }

    fn list(
        &mut self,
        header: Header,
        version: &str,
        kind: &str,
        text: Text<'_>,
        at: &ItemSource,
    ) -> Result<(), DumpError> {
        let item = kind.strip_suffix("List").unwrap_or_default();
        let of = (!item.is_empty()).then_some(ListOf { version, kind: item });
        if of.is_some() {
            if !(self.wanted)(version, item) {
                return Ok(());
            }
            self.kinds.insert(item.to_owned());
        }
        let text = Text { depth: text.depth + 1, ..text };
        if text.depth > MAX_LISTS {
            let problem = "is nested too deeply".to_owned();
            return Err(DumpError::Object { at: at.clone(), field: "items", problem });
        }
        match header.items {
            Some(ListItems::Items(items)) => self.items(items, text, at, of),
            Some(ListItems::Unsplit(part)) => {
                let items = Scanner::new(text.whole, part.start).array(list_item);
                self.items(items.map_err(|NotJson| text.json_error(at.document))?, text, at, of)
            }
            // How Go prints a nil slice.
            Some(ListItems::NotAList(part)) if &text.whole[part.clone()] == "null" => Ok(()),
            Some(ListItems::NotAList(part)) => Err(text.wrong_type(&part, "items", "a list", at)),
            None => Err(missing(at, "items")),
        }
    }

    /// Keeps the copy with the higher resource version, or the later one. Copies of the same
    /// version are the same state, even if one was printed with fewer fields; where versions cannot
    /// be compared, a difference is a warning.
    fn add(&mut self, identity: Identity, item: Item) {
        let mut entry = match self.items.entry(identity) {
            Entry::Vacant(entry) => {
                if !self.kinds.contains(&*entry.key().kind) {
                    self.kinds.insert(entry.key().kind.to_string());
                }
                entry.insert(item);
                return;
            }
            Entry::Occupied(entry) => entry,
        };
        match compare_versions(entry.get(), &item) {
            Some(Ordering::Greater) => return,
            Some(Ordering::Equal | Ordering::Less) => {}
            None if entry.get().value() == item.value() => {}
            None => {
                let Identity { kind, namespace, name, .. } = entry.key();
                let slash = if namespace.is_empty() { "" } else { "/" };
                self.warnings.push(format!(
                    "{kind} {namespace}{slash}{name} differs between {} and {}; the latter is used",
                    entry.get().source,
                    item.source
                ));
            }
        }
        entry.insert(item);
    }
}

/// What was found in a text so far.
struct Found {
    documents: usize,
    not_objects: Vec<DumpError>,
    origin: Origin,
}

impl Found {
    fn new(origin: Origin) -> Found {
        Found { documents: 0, not_objects: Vec::new(), origin }
    }
}

impl Text<'_> {
    /// A string. Absent, null and empty mean the same, as for the API server.
    fn string(
        &self,
        part: Option<&Range<usize>>,
        field: &'static str,
        at: &ItemSource,
    ) -> Result<Option<Cow<'_, str>>, DumpError> {
        let Some(part) = part else { return Ok(None) };
        match &self.whole[part.clone()] {
            "null" => Ok(None),
            value if value.starts_with('"') => {
                let text = json::text(value).ok_or_else(|| self.json_error(at.document))?;
                Ok(Some(text).filter(|text| !text.is_empty()))
            }
            _ => Err(self.wrong_type(part, field, "a string", at)),
        }
    }

    fn wrong_type(&self, part: &Range<usize>, field: &'static str, wanted: &str, at: &ItemSource) -> DumpError {
        let problem = format!("is {}, not {wanted}", json::type_of(&self.whole[part.clone()]));
        DumpError::Object { at: at.clone(), field, problem }
    }

    fn not_an_object(&self, part: &Range<usize>, at: &ItemSource) -> DumpError {
        DumpError::NotAnObject { at: at.clone(), found: json::type_of(&self.whole[part.clone()]) }
    }

    /// The first error of the text, with its position.
    fn json_error(&self, document: usize) -> DumpError {
        let mut values = serde_json::Deserializer::from_str(&self.whole[self.start..]).into_iter::<Value>();
        let error = values.find_map(Result::err);
        let source = error.unwrap_or_else(|| serde::de::Error::custom("a string is not Unicode"));
        DumpError::Json { file: self.file.to_string(), document, source }
    }
}

/// The documents of `kubectl cluster-info dump`, which prints the logs of containers between them; none for another text.
fn without_logs(text: &str) -> Option<String> {
    const START: &str = "==== START logs for container ";
    const END: &str = "==== END logs for container ";
    if !is_json(text) || !text.contains(&format!("\n{START}")) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut in_logs = false;
    for line in text.split_inclusive('\n') {
        in_logs |= line.starts_with(START);
        if !in_logs {
            out.push_str(line);
        }
        in_logs &= !line.starts_with(END);
    }
    Some(out)
}

/// Distinguishes JSON from YAML in flow style, where keys need no quotes.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let inside = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '['));
    text.starts_with(['{', '[']) && (inside.is_empty() || inside.starts_with(['"', '}', ']']))
}

fn part(scanner: &mut Scanner<'_>) -> Result<Part, NotJson> {
    let (first, start) = (scanner.peek(), scanner.position());
    match first {
        Some(b'{') => {
            let header = header(scanner, None)?;
            Ok(Part::Object(start..scanner.position(), header))
        }
        Some(b'[') => {
            let items = scanner.array(list_item)?;
            Ok(Part::Items(start..scanner.position(), items))
        }
        _ => scanner.value().map(Part::Other),
    }
}

/// Goes past an item of a list. A list of lists is none.
fn list_item(scanner: &mut Scanner<'_>) -> Result<Part, NotJson> {
    let (first, start) = (scanner.peek(), scanner.position());
    match first {
        Some(b'{') => {
            let header = header(scanner, Some(ListItems::Unsplit))?;
            Ok(Part::Object(start..scanner.position(), header))
        }
        _ => scanner.value().map(Part::Other),
    }
}

/// Goes past an object, and finds what tells which object it is. Its items are split, unless `unsplit` is what they are kept
/// as.
fn header(scanner: &mut Scanner<'_>, unsplit: Option<fn(Range<usize>) -> ListItems>) -> Result<Header, NotJson> {
    let mut header = Header::default();
    scanner.object(|scanner, key| {
        if key == "items" && scanner.peek() == Some(b'[') {
            header.items = Some(match unsplit {
                Some(unsplit) => unsplit(scanner.value()?),
                None => ListItems::Items(scanner.array(list_item)?),
            });
            return Ok(());
        }
        if key == "metadata" {
            header.metadata = Some(Metadata::read(scanner)?);
            return Ok(());
        }
        let part = scanner.value()?;
        match key {
            "apiVersion" => header.version = Some(part),
            "kind" => header.kind = Some(part),
            "items" => header.items = Some(ListItems::NotAList(part)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(header)
}

/// The error for a document that does not look like a Kubernetes object.
fn not_an_object(document: &Part, text: Text<'_>, at: &ItemSource) -> Option<DumpError> {
    let has_kind = |part: &Part| matches!(part, Part::Object(_, header) if header.kind.is_some());
    match document {
        // A truncated typed list has no kind yet.
        Part::Object(_, header) if header.kind.is_some() || header.version.is_some() => None,
        Part::Object(..) => Some(missing(at, "kind")),
        Part::Items(_, items) if items.iter().all(has_kind) => None,
        other => Some(text.not_an_object(other.range(), at)),
    }
}

/// The name, the namespace and the resource version of an object.
fn metadata(header: &Header, text: Text<'_>, at: &ItemSource) -> Result<(String, String, Option<Box<str>>), DumpError> {
    let metadata = header.metadata.as_ref().filter(|metadata| &text.whole[metadata.part.clone()] != "null");
    let metadata = metadata.ok_or_else(|| missing(at, "metadata"))?;
    if text.whole.as_bytes()[metadata.part.start] != b'{' {
        return Err(text.wrong_type(&metadata.part, "metadata", "an object", at));
    }
    let name = text.string(metadata.name.as_ref(), "metadata.name", at)?;
    let namespace = text.string(metadata.namespace.as_ref(), "metadata.namespace", at)?;
    let version = metadata.resource_version.clone();
    let version = version.and_then(|part| json::text(&text.whole[part]).map(|version| Box::from(&*version)));
    let name = name.ok_or_else(|| missing(at, "metadata.name"))?;
    Ok((name.into_owned(), namespace.unwrap_or_default().into_owned(), version))
}

/// Compares the resource versions of two copies as decimal numbers of any length.
fn compare_versions(one: &Item, other: &Item) -> Option<Ordering> {
    let (one, other) = (digits(one)?, digits(other)?);
    Some(one.len().cmp(&other.len()).then_with(|| one.cmp(other)))
}

fn digits(item: &Item) -> Option<&str> {
    let text = item.resource_version.as_deref()?;
    let digits = text.trim_start_matches('0');
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

fn missing(at: &ItemSource, field: &'static str) -> DumpError {
    DumpError::Object { at: at.clone(), field, problem: "is missing".to_owned() }
}
