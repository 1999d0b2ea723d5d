//! Screenshots of the timeline page, for the documentation: a real browser, in light and dark.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use stead_real::Outcome;

use crate::{cargo, root};

/// Browsers that take screenshots without a display.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The rehearsal, and the size of the window: as much as the timeline needs.
const REHEARSAL: &str = "glance";
const SIZE: (u32, u32) = (1320, 830);
/// Smaller pictures, which are still readable.
const SCALE: &str = "--force-device-scale-factor=0.68";

/// The themes: the name in the file, and Chromium's number of it.
const THEMES: [(&str, u8); 2] = [("light", 1), ("dark", 0)];

pub(crate) fn run() -> Result<Outcome> {
    let Some(browser) = BROWSERS.into_iter().find(|name| is_there(name)) else {
        println!("screenshots: skipped: no {} is installed", BROWSERS[0]);
        return Ok(Outcome::Skipped);
    };
    let folder = root().join("docs/images");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let page = page()?;
    for (theme, number) in THEMES {
        let image = folder.join(format!("rehearse-{theme}.png"));
        take(browser, &page, number, &image)?;
        let size = std::fs::metadata(&image).with_context(|| format!("no {}", image.display()))?.len();
        println!("screenshots: {}: {} kB", image.display(), size / 1000);
    }
    Ok(Outcome::Passed)
}

fn is_there(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Plays the rehearsal, and gives the page.
fn page() -> Result<PathBuf> {
    let page = root().join("target/rehearsal.html");
    let mut play = cargo::cargo();
    play.args(["run", "--quiet", "--package", "stead", "--", "rehearse", REHEARSAL, "--html"]).arg(&page);
    let status = play.stdout(Stdio::null()).status().context("running stead rehearse")?;
    ensure!(status.success(), "stead rehearse {REHEARSAL} failed");
    Ok(page)
}

fn take(browser: &str, page: &Path, theme: u8, image: &Path) -> Result<()> {
    let profile = std::env::temp_dir().join(format!("stead-screenshots-{}", std::process::id()));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", SCALE])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--blink-settings=preferredColorScheme={theme}"))
        .arg(format!("--window-size={},{}", SIZE.0, SIZE.1))
        .arg(format!("--screenshot={}", image.display()))
        .arg(format!("file://{}", page.display()))
        .output();
    // The profile is of no use any more; if it stays, it is in the folder for temporary files.
    let _ = std::fs::remove_dir_all(&profile);
    let output = output.with_context(|| format!("running {browser}"))?;
    ensure!(output.status.success(), "{browser}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
