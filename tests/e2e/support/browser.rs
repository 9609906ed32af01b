//! A headless Chromium, driven over the DevTools protocol.
//!
//! The messages are JSON with a NUL after each, on the browser's descriptors 3 and 4 (`--remote-debugging-pipe`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{tool, wait_until};

/// How long the browser may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    _process: Child,
    _profile: tempfile::TempDir,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The number of commands so far.
    commands: u64,
    /// The session of the page; empty before there is one.
    session: String,
    /// Errors on the page's console, and exceptions of its script.
    errors: Vec<String>,
}

impl Browser {
    /// Opens a page, or skips the case without a browser, as [`tool`] does.
    pub(crate) async fn open(url: &str) -> Option<Self> {
        let program = tool("chromium")?;
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars"])
            // The sandbox does not work as root, and the page is our own. Containers have a small /dev/shm.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a shell runs");
        let to = process.stdin.take().expect("it is piped");
        let from = BufReader::new(process.stdout.take().expect("it is piped"));
        let (session, errors) = (String::new(), Vec::new());
        let mut browser =
            Self { _process: process, _profile: profile, to, from, commands: 0, session, errors };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach).await;
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser.resize(1400, 1000).await;
        browser.call("Page.navigate", json!({"url": url})).await;
        Some(browser)
    }

    /// Sends a command and returns its result.
    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.commands += 1;
        let mut command = json!({"id": self.commands, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{command}\0").as_bytes()).await.expect("the browser runs");
        let answer = tokio::time::timeout(PATIENCE, self.answer(self.commands)).await;
        let answer = answer.unwrap_or_else(|_| panic!("the browser does not answer {method}"));
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Reads messages until the answer to this command.
    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message).await.expect("the browser runs");
            assert_eq!(message.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            if message["id"] == id {
                return message;
            }
            let parameters = &message["params"];
            let is_error = match message["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => true,
                "Runtime.consoleAPICalled" => parameters["type"] == "error",
                "Log.entryAdded" => parameters["entry"]["level"] == "error",
                _ => false,
            };
            if is_error {
                self.errors.push(parameters.to_string());
            }
        }
    }

    /// Evaluates an expression on the page.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true on the page; if it never is, the failure shows the value of `shown`.
    pub(crate) async fn wait_for(&mut self, what: &str, expression: &str, shown: &str) {
        wait_until(what, async || {
            if self.eval(expression).await == true { Ok(()) } else { Err(self.eval(shown).await) }
        })
        .await;
    }

    /// Clicks on the first element that this selector finds.
    pub(crate) async fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        self.eval(&format!("document.querySelector({selector}).click()")).await;
    }

    /// Moves the switch of this name, as a person does.
    pub(crate) async fn set(&mut self, switch: &str, value: u32) {
        let input = format!("document.querySelector('[data-switch=\"{switch}\"]')");
        let events = ["input", "change"]
            .map(|event| format!("input.dispatchEvent(new Event('{event}', {{bubbles: true}}));"))
            .concat();
        self.eval(&format!("{{ const input = {input}; input.value = {value}; {events} }}")).await;
    }

    /// Returns the errors on the page's console so far.
    pub(crate) async fn errors(&mut self) -> &[String] {
        // Messages that came before are read by then.
        self.eval("0").await;
        &self.errors
    }

    /// Sets the size of the page in CSS pixels.
    pub(crate) async fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Prefers a scheme of colours, `light` or `dark`.
    pub(crate) async fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]})).await;
    }

    /// Writes the visible part of the page to a PNG file.
    pub(crate) async fn screenshot(&mut self, file: &Path) {
        let png = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let png = STANDARD.decode(png["data"].as_str().expect("base64")).expect("base64");
        std::fs::write(file, png).expect("the file can be written");
    }
}
