//! The pages: what there is to load, from where, and what makes it known.

use serde_json::{Value, json};
use std::time::Duration;

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The document.
    Html,
    /// A style sheet.
    Style,
    Script,
    /// An image, or anything else that nothing waits for.
    Image,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Html, Self::Style, Self::Script, Self::Image];

    /// Its name in `--describe`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Style => "style",
            Self::Script => "script",
            Self::Image => "image",
        }
    }
}

/// One object of a page. Number 0 is the document; the others are in the order of the document, and then those
/// that other objects make known.
#[derive(Debug, Clone)]
pub struct Resource {
    pub host: usize,
    pub kind: Kind,
    /// Bytes of the body.
    pub size: usize,
    /// Number of the resource that makes it known.
    pub parent: usize,
    /// Where in the document it is named, from 0 to 1. The other parents make it known when they were processed.
    pub at: f64,
    /// In the document's head: it holds rendering up.
    pub blocks: bool,
    /// Time that the browser's main thread works on it, if it was measured.
    pub work: Option<Duration>,
    /// Mean time that the server thinks about it, if it was measured.
    pub think: Option<Duration>,
    /// Its address, if it has one.
    pub url: Option<String>,
}

impl Resource {
    /// A resource without measured times.
    pub const fn new(host: usize, kind: Kind, size: usize) -> Self {
        Self { host, kind, size, parent: 0, at: 0.0, blocks: false, work: None, think: None, url: None }
    }

    /// Time that the browser's main thread works on it.
    pub fn work(&self) -> Duration {
        if let Some(work) = self.work {
            return work;
        }
        let (fixed, per_kilobyte) = match self.kind {
            Kind::Html => (2_000, 150),
            Style => (500, 60),
            Script => (1_000, 120),
            Image => (0, 0),
        };
        Duration::from_micros(fixed + per_kilobyte * self.size as u64 / 1000)
    }
}

#[derive(Debug, Clone)]
pub struct Page {
    pub name: String,
    /// The page of the paper that it stands for.
    pub stands_for: Option<&'static str>,
    /// Number of hosts.
    pub hosts: usize,
    pub resources: Vec<Resource>,
}

/// What a page is made of.
struct Plan {
    name: &'static str,
    stands_for: &'static str,
    /// Size of the document, bytes.
    document: usize,
    /// Mean and median of all sizes, bytes.
    sizes: (f64, f64),
    hosts: usize,
    groups: &'static [Group],
}

/// Resources of a kind.
struct Group {
    kind: Kind,
    count: usize,
    /// They are on these hosts in turn.
    hosts: &'static [usize],
    by: By,
}

/// What makes resources known.
#[derive(Clone, Copy)]
enum By {
    /// The head of the document.
    Head,
    /// The body of the document, from here to there in per cent.
    Body(u8, u8),
    /// The style sheets in turn.
    Styles,
    /// The scripts in turn.
    Scripts,
}

const fn group(kind: Kind, count: usize, hosts: &'static [usize], by: By) -> Group {
    Group { kind, count, hosts, by }
}

use By::{Body, Head, Scripts, Styles};
use Kind::{Image, Script, Style};

/// The paper's average page (its §1 and §6.1): 44 resources on 7 hosts, more than 300 KB, 7.3 KB in the mean and 2.4 KB
/// in the median.
const AVERAGE: Plan = Plan {
    name: "average",
    stands_for: "amazon.com",
    document: 24_000,
    sizes: (7_300.0, 2_400.0),
    hosts: 7,
    groups: &[
        group(Style, 3, &[1], Head),
        group(Script, 4, &[1, 1, 1, 3], Head),
        group(Image, 20, &[2, 1, 2, 1, 2], Body(10, 90)),
        group(Script, 4, &[1, 3, 4], Body(70, 98)),
        group(Image, 6, &[1], Styles),
        group(Image, 6, &[5, 3, 6], Scripts),
    ],
};

const ENCYCLOPEDIA: Plan = Plan {
    name: "encyclopedia",
    stands_for: "TCP wikipedia page",
    document: 60_000,
    sizes: (10_000.0, 3_000.0),
    hosts: 3,
    groups: &[
        group(Style, 3, &[1], Head),
        group(Script, 3, &[1], Head),
        group(Image, 14, &[2], Body(10, 95)),
        group(Script, 2, &[1], Body(96, 99)),
        group(Image, 4, &[1], Styles),
        group(Script, 3, &[1, 0], Scripts),
    ],
};

const NEWS: Plan = Plan {
    name: "news",
    stands_for: "nytimes.com",
    document: 40_000,
    sizes: (9_000.0, 2_800.0),
    hosts: 12,
    groups: &[
        group(Style, 4, &[1], Head),
        group(Script, 8, &[1, 1, 3], Head),
        group(Image, 50, &[2, 1, 2, 4, 2, 0], Body(8, 92)),
        group(Script, 12, &[1, 3, 5, 6, 7], Body(40, 98)),
        group(Image, 10, &[1], Styles),
        group(Image, 20, &[8, 5, 9, 10, 11], Scripts),
    ],
};

const LARGER: Plan = Plan {
    name: "news, larger",
    stands_for: "wsj.com",
    document: 60_000,
    sizes: (10_000.0, 2_800.0),
    hosts: 16,
    groups: &[
        group(Style, 6, &[1, 1, 2], Head),
        group(Script, 14, &[1, 1, 3, 2], Head),
        group(Image, 75, &[2, 1, 2, 4, 2, 0, 5], Body(8, 92)),
        group(Script, 20, &[1, 3, 6, 7, 8, 9], Body(30, 98)),
        group(Image, 14, &[1, 2], Styles),
        group(Image, 30, &[10, 6, 11, 12, 13, 14, 15], Scripts),
    ],
};

/// The four pages.
pub fn all() -> Vec<Page> {
    [AVERAGE, NEWS, LARGER, ENCYCLOPEDIA].iter().map(Plan::page).collect()
}

impl Plan {
    fn page(&self) -> Page {
        let mut resources = vec![Resource::new(0, Kind::Html, self.document)];
        let of_document = self.groups.iter().filter(|group| matches!(group.by, Head | Body(..)));
        for group in of_document {
            let (from, to) = if let Body(from, to) = group.by { (from, to) } else { (1, 5) };
            let (from, to) = (f64::from(from) / 100.0, f64::from(to) / 100.0);
            resources.extend((0..group.count).map(|n| Resource {
                at: from + (to - from) * (n as f64 + 0.5) / group.count as f64,
                blocks: matches!(group.by, Head),
                ..Resource::new(group.hosts[n % group.hosts.len()], group.kind, 0)
            }));
        }
        resources.sort_by(|a, b| a.at.total_cmp(&b.at));
        for group in self.groups {
            let parents: Vec<usize> = match group.by {
                Styles => of_kind(&resources, Style),
                Scripts => of_kind(&resources, Script),
                Head | Body(..) => continue,
            };
            resources.extend((0..group.count).map(|n| Resource {
                parent: parents[n % parents.len()],
                at: 1.0,
                ..Resource::new(group.hosts[n % group.hosts.len()], group.kind, 0)
            }));
        }
        self.give_sizes(&mut resources);
        Page { name: self.name.into(), stands_for: Some(self.stands_for), hosts: self.hosts, resources }
    }

    /// Gives every resource but the document a size: the quantiles of a lognormal distribution, in an order without
    /// a pattern. The largest make up what the quantiles lack to the mean.
    fn give_sizes(&self, resources: &mut [Resource]) {
        let (mean, median) = self.sizes;
        let spread = (2.0 * (mean / median).ln()).sqrt();
        let count = resources.len() - 1;
        let mut sizes: Vec<usize> = (0..count)
            .map(|n| (median * (spread * normal((n as f64 + 0.5) / count as f64)).exp()) as usize)
            .map(|size| size.max(60))
            .collect();
        let wanted = (mean * resources.len() as f64) as usize;
        let lacks = wanted.saturating_sub(self.document + sizes.iter().sum::<usize>());
        sizes.iter_mut().rev().take(4).for_each(|size| *size += lacks / 4);
        // A multiplicative hash: the same order on every machine.
        let mut order: Vec<usize> = (1..=count).collect();
        order.sort_by_key(|n| (*n as u32).wrapping_mul(2_654_435_761).rotate_left(9));
        for (number, size) in order.into_iter().zip(sizes) {
            resources[number].size = size;
        }
    }
}

fn of_kind(resources: &[Resource], kind: Kind) -> Vec<usize> {
    (0..resources.len()).filter(|n| resources[*n].kind == kind && resources[*n].parent == 0).collect()
}

/// The quantile of the normal distribution, by bisection of its integral (Abramowitz and Stegun 26.2.17, error below
/// 10⁻⁷).
fn normal(share: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if below(middle) < share { low = middle } else { high = middle }
    }
    low
}

fn below(x: f64) -> f64 {
    const B: [f64; 5] = [0.319_381_53, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let sum = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x < 0.0 { tail } else { 1.0 - tail }
}

impl Page {
    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.resources.iter().map(|resource| resource.size).sum()
    }

    /// The page, for a test that builds it from files.
    pub fn json(&self) -> Value {
        let resources: Vec<Value> = self.resources.iter().map(describe).collect();
        json!({ "name": self.name, "hosts": self.hosts, "bytes": self.bytes(), "resources": resources })
    }
}

fn describe(resource: &Resource) -> Value {
    let mut described = json!({
        "host": resource.host,
        "kind": resource.kind.as_str(),
        "size": resource.size,
        "parent": resource.parent,
        "at": resource.at,
        "blocks": resource.blocks,
        "work_us": resource.work().as_micros() as u64,
    });
    if let Some(think) = resource.think {
        described["think_us"] = json!(think.as_micros() as u64);
    }
    if let Some(url) = &resource.url {
        described["url"] = json!(url);
    }
    described
}

#[cfg(test)]
mod tests;
