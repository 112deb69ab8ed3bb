use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::*;

/// Registry in memory. It never responds for a key with `hang`, and responds 500 for a key with `broken`.
#[derive(Default)]
struct MemoryRegistry {
    items: Mutex<BTreeMap<String, Json>>,
    in_flight: Mutex<(usize, usize)>,
    hangs_list: bool,
}

impl MemoryRegistry {
    fn respond(&self, request: &Request<Vec<u8>>) -> (StatusCode, Vec<u8>) {
        let mut items = self.items.lock();
        let path = request.uri().path();
        if path == "/list" {
            return (StatusCode::OK, items.values().cloned().collect::<Json>().to_string().into_bytes());
        }
        if path.contains("broken") {
            return (StatusCode::INTERNAL_SERVER_ERROR, Vec::new());
        }
        match (request.method(), items.get(path)) {
            (&Method::PUT, _) => {
                items.insert(path.to_owned(), serde_json::from_slice(request.body()).expect("JSON"));
                (StatusCode::OK, Vec::new())
            }
            (&Method::DELETE, Some(_)) => {
                items.remove(path);
                (StatusCode::OK, Vec::new())
            }
            (_, Some(item)) => (StatusCode::OK, item.to_string().into_bytes()),
            (_, None) => (StatusCode::NOT_FOUND, Vec::new()),
        }
    }
}

impl RegistryClient for MemoryRegistry {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let path = request.uri().path();
        if path.contains("hang") || (path == "/list" && self.hangs_list) {
            std::future::pending::<()>().await;
        }
        {
            let mut in_flight = self.in_flight.lock();
            in_flight.0 += 1;
            in_flight.1 = in_flight.1.max(in_flight.0);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.in_flight.lock().0 -= 1;
        let (status, body) = self.respond(&request);
        Ok(Response::builder().status(status).body(body).expect("a response"))
    }
}

fn registry<R: RegistryClient>(requests: R) -> Registry<R> {
    let layout = Layout::new("http://r.example.test/items/{key}", "http://r.example.test/list?token=hunter2", "m");
    Registry::new(requests, layout).expect("a registry")
}

/// Registry in memory whose items have weak tags. A strict one never matches them. `interferes` means that another
/// client changes an item during a rejected write.
#[derive(Default)]
struct WeaklyTaggedRegistry {
    registry: MemoryRegistry,
    is_strict: bool,
    interferes: bool,
}

impl RegistryClient for WeaklyTaggedRegistry {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let path = request.uri().path().to_owned();
        let tag = self.registry.items.lock().get(&path).map(|item| format!("W/\"{}\"", item["value"]));
        let sent = request.headers().get(IF_MATCH).and_then(|sent| sent.to_str().ok());
        if sent.is_some() && (self.is_strict || sent != tag.as_deref()) {
            if let Some(item) = self.registry.items.lock().get_mut(&path).filter(|_| self.interferes) {
                item["value"] = json!(9);
            }
            return Ok(Response::builder().status(412).body(Vec::new()).expect("a response"));
        }
        let mut response = self.registry.send(request).await?;
        if let Some(tag) = tag {
            response.headers_mut().insert(ETAG, tag.parse().expect("a tag"));
        }
        Ok(response)
    }
}

fn add(key: &str) -> Step<RegistryItem> {
    Step::Add { name: key.to_owned(), value: RegistryItem(json!(1)) }
}

#[tokio::test(start_paused = true)]
async fn hanging_key_delays_no_other_key() {
    let registry = registry(MemoryRegistry::default());
    registry.apply(&[add("shop/s1")]).await.expect("one item");
    let mut steps = vec![add("other/broken"), add("other/hang")];
    steps.extend((2..40).map(|number| add(&format!("shop/s{number}"))));
    steps.push(Step::Remove { name: "shop/s1".to_owned(), value: RegistryItem(json!(1)) });
    let started = Instant::now();
    let error = registry.apply(&steps).await.expect_err("two keys fail");
    let expected = "the registry responded to `PUT http://r.example.test/items/other%2Fbroken` with 500 Internal Server \
                    Error; 1 other entry failed too: \"other/hang\"";
    assert_eq!(error.to_string(), expected);
    assert_eq!(started.elapsed(), STEP_RUNNER.step_timeout);
    let found = registry.read().await.expect("a list");
    assert_eq!(found.own.len(), 38);
    assert!(!found.own.contains_key("shop/s1"));
    assert_eq!(registry.client.in_flight.lock().1, 8 - 1, "one of eight lanes hangs");

    let error = registry.apply(&[add("a"), add("other/hang"), add("z")]).await.expect_err("one key hangs");
    assert_eq!(
        error.to_string(),
        "the registry did not respond to `PUT http://r.example.test/items/other%2Fhang` within 4 s"
    );
}

#[tokio::test(start_paused = true)]
async fn hanging_list_ends_at_deadline() {
    let registry = registry(MemoryRegistry { hangs_list: true, ..MemoryRegistry::default() });
    let started = Instant::now();
    let error = registry.read().await.expect_err("no response");
    assert_eq!(error.to_string(), "the registry did not respond to `GET http://r.example.test/list?…` within 9 s");
    assert_eq!(started.elapsed(), LIST_TIMEOUT);
}

#[tokio::test]
async fn validate_removes_keys_of_other_paths() {
    let mut desired: BTreeMap<_, _> =
        ["shop/web", "shop/../other/web", "shop//web"].map(|key| (key.to_owned(), RegistryItem(json!(1)))).into();
    let reasons = registry(MemoryRegistry::default()).validate(&mut desired);
    assert_eq!(desired.keys().collect::<Vec<_>>(), ["shop/web"]);
    assert_eq!(reasons.keys().collect::<Vec<_>>(), ["shop/../other/web", "shop//web"]);
    assert!(reasons["shop/../other/web"].contains("consists of dots"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn weak_tag_does_not_block_writes() {
    for is_strict in [false, true] {
        let registry = registry(WeaklyTaggedRegistry { is_strict, ..WeaklyTaggedRegistry::default() });
        let (one, two) = (RegistryItem(json!(1)), RegistryItem(json!(2)));
        registry.apply(&[add("a")]).await.expect("a new item");
        let change = Step::Change { name: "a".to_owned(), from: one, to: two.clone() };
        registry.apply(&[change]).await.expect("a changed item");
        assert_eq!(registry.read().await.expect("a list").own["a"], two, "strict: {is_strict}");
        registry.apply(&[Step::Remove { name: "a".to_owned(), value: two }]).await.expect("a removed item");
        assert!(registry.read().await.expect("a list").own.is_empty(), "strict: {is_strict}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_weak_tag_prevents_write() {
    let client = WeaklyTaggedRegistry { is_strict: true, interferes: true, ..WeaklyTaggedRegistry::default() };
    let registry = registry(client);
    registry.apply(&[add("a")]).await.expect("a new item");
    let remove = Step::Remove { name: "a".to_owned(), value: RegistryItem(json!(1)) };
    let error = registry.apply(&[remove]).await.expect_err("a conflict");
    assert!(matches!(&error, RegistryError::Conflict { key } if key == "a"), "{error}");
    assert_eq!(registry.read().await.expect("a list").own["a"], RegistryItem(json!(9)));
}
