use super::options::{Window, rtt, think};
use super::way::{ASAP, ASAP_INSIDE, BEYOND, FAST_OPEN, HANDSHAKE, LoadWay, PRECONNECT};
use super::world::{self, Load, Setting};
use super::*;
use firstflight_link::path::FilterVerdict;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    pages: Pages,
}

fn parse(arguments: &[&str]) -> Result<Pages, clap::Error> {
    let arguments = ["pages", "--seed", "7"].iter().chain(arguments);
    <Command as clap::Parser>::try_parse_from(arguments).map(|command| command.pages)
}

fn options() -> Pages {
    parse(&[]).unwrap()
}

/// A line on which bytes cost next to nothing.
fn fast(rtt: u64) -> Setting {
    Pages { up: 100_000, down: 100_000, ..options() }.setting(rtt, Window::NOW)
}

fn load(page: &page::Page, way: LoadWay, setting: &Setting) -> Load {
    let jitter = world::jitter(page, setting.think, 7, 0);
    world::load(page, way, setting, &jitter, 7).unwrap()
}

/// The paper's Table 1: Fast Open saves more on longer paths. At 20 ms the uplink and the order of the requests decide,
/// and its effect is within a few per cent. The buffer drops nothing: a lost packet costs a timeout by chance.
#[test]
fn the_longer_the_path_the_more_fast_open_saves() {
    for page in page::all() {
        for window in [Window::THEN, Window::NOW] {
            let gain = |rtt| {
                let setting = Pages { buffer: 1024, ..options() }.setting(rtt, window);
                let time = |way| {
                    let load = load(&page, way, &setting);
                    assert_eq!(load.dropped, 0);
                    load.time.as_secs_f64()
                };
                1.0 - time(FAST_OPEN) / time(HANDSHAKE)
            };
            let gains = [20, 200].map(gain);
            let [near, far] = gains;
            assert!(
                (-0.05..0.1).contains(&near) && (0.08..0.45).contains(&far) && far > near,
                "{} {gains:?}",
                page.name
            );
        }
    }
}

/// The paper's §1: 2.4 requests on a connection.
#[test]
fn a_connection_of_the_average_page_has_the_papers_number_of_requests() {
    let page = &page::all()[0];
    let counts = load(page, HANDSHAKE, &options().setting(100, Window::NOW)).counts;
    assert_eq!((counts.requests, counts.lookups), (page.resources.len(), page.hosts));
    let each = counts.requests as f64 / counts.connections as f64;
    assert!((1.8..3.0).contains(&each), "{each}");
}

#[test]
fn every_way_loads_the_average_page() {
    let page = &page::all()[0];
    // At 100 ms the bytes of tickets and seals still cost more of the uplink than the round trip saves.
    let setting = options().setting(200, Window::NOW);
    for (way, over) in BEYOND {
        let (with, without) = (load(page, way, &setting), load(page, over, &setting));
        assert_eq!(with.counts.requests, page.resources.len(), "{}", way.name);
        assert!(with.time < without.time.mul_f64(1.02), "{}: {with:?} {without:?}", way.name);
        if way.multiplexed {
            assert_eq!(with.counts.connections, page.hosts, "{}", way.name);
        }
        if !way.reuse {
            assert_eq!(with.counts.connections - with.unused(), page.resources.len(), "{}", way.name);
        }
    }
}

/// Each host's server gets one request by its lookup. What of the response fits into three times the bytes received is a
/// round trip earlier, the rest by the time that the server thinks.
#[test]
fn on_a_fast_line_asap_inside_the_lookup_is_never_slower_than_asap() {
    for page in page::all() {
        for rtt in RTTS {
            let setting = fast(rtt);
            let [asap, inside] = [ASAP, ASAP_INSIDE].map(|way| load(&page, way, &setting));
            assert_eq!((asap.by_lookup, inside.by_lookup), (0, page.hosts));
            assert_eq!(inside.counts.requests, page.resources.len());
            let saved = asap.time.as_secs_f64() - inside.time.as_secs_f64();
            println!("{} at {rtt} ms: {saved:.3} s of {:.3} s saved", page.name, asap.time.as_secs_f64());
            assert!(saved > 0.0, "{} at {rtt} ms: {asap:?} {inside:?}", page.name);
        }
    }
}

/// A resolver that swallows the names costs the shortcut and nothing else: the direct copies arrive when ASAP's do. They
/// hold only the first line of the request, so a longer response takes another round trip.
#[test]
fn without_the_names_asap_inside_the_lookup_is_asap() {
    let page = &page::all()[0];
    let setting = fast(100);
    // With some seeds a segment more or less ends a round trip earlier in one of the two.
    let seed = 1;
    let jitter = world::jitter(page, setting.think, seed, 0);
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = Arc::clone(&counts);
    let swallowed = world::load_on(page, ASAP_INSIDE, &setting, &jitter, seed, move |net| {
        net.up.set_filter(Box::new(move |packet| {
            if packet.first() != Some(&0) || packet.get(5) == Some(&0) {
                return FilterVerdict::Forward;
            }
            counted[0].fetch_add(1, Ordering::Relaxed);
            counted[1].fetch_add(packet.len(), Ordering::Relaxed);
            FilterVerdict::Drop
        }));
    })
    .unwrap();
    // Names of each host, and their bytes with IP and UDP, as the table's note says.
    let [names, bytes] = [0, 1].map(|at| counts[at].load(Ordering::Relaxed));
    assert_eq!((names, bytes / page.hosts), (7 * page.hosts, 833));
    let asap = world::load(page, ASAP, &setting, &jitter, seed).unwrap();
    assert_eq!(swallowed.by_lookup, 0);
    assert_eq!(swallowed.counts.requests, page.resources.len());
    let firsts = |load: &Load| {
        let firsts = load.trace.requests.iter().filter_map(|request| request.first).take(8);
        firsts.map(|first| first.as_micros() / 1000).collect::<Vec<_>>()
    };
    // The document, and what its head names.
    for (first, of_asap) in firsts(&swallowed).into_iter().zip(firsts(&asap)) {
        assert!(first <= of_asap, "{:?} {:?}", firsts(&swallowed), firsts(&asap));
    }
    assert!(swallowed.time <= asap.time + setting.line.rtt, "{swallowed:?} {asap:?}");
}

#[test]
fn a_lost_answer_of_the_resolver_is_asked_for_again() {
    let page = &page::all()[0];
    let setting = options().setting(100, Window::NOW);
    let jitter = world::jitter(page, setting.think, 7, 0);
    let undisturbed = load(page, HANDSHAKE, &setting);
    let mut lost = 0;
    let disturbed = world::load_on(page, HANDSHAKE, &setting, &jitter, 7, |net| {
        net.down.set_filter(Box::new(move |packet| {
            // The first messages beside TCP.
            lost += u32::from(packet.first() == Some(&0));
            if packet.first() == Some(&0) && lost <= 2 { FilterVerdict::Drop } else { FilterVerdict::Forward }
        }));
    })
    .unwrap();
    assert_eq!(disturbed.counts.lookups, undisturbed.counts.lookups + 2);
    // It is sent again after 1 s, and then after 2 s more.
    let later = disturbed.time - undisturbed.time;
    assert!((2_990..3_010).contains(&later.as_millis()), "{later:?}");
}

#[test]
fn two_runs_with_one_seed_are_identical() {
    let outputs = [(); 2].map(|()| {
        let pages = page::all().into_iter().take(1).collect::<Vec<_>>();
        let results = measure::measure(&options(), &pages).unwrap();
        let drawings = [plot::gains(&results).unwrap(), plot::ways(&results).unwrap()];
        (report::text(&options(), &results), report::json(&options(), &results).to_string(), drawings)
    });
    assert_eq!(outputs[0], outputs[1]);
    let other = Pages { seed: 8, ..options() };
    let pages = page::all().into_iter().take(1).collect::<Vec<_>>();
    let results = measure::measure(&other, &pages).unwrap();
    assert_ne!(report::text(&other, &results), outputs[0].0);
}

#[test]
fn a_page_is_described_for_those_who_build_it() {
    let text = run(&Pages { describe: true, ..options() }).unwrap();
    let pages: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(pages[0]["name"], "average");
    assert_eq!(pages[0]["resources"].as_array().unwrap().len(), 44);
    assert_eq!(pages[0]["resources"][0]["kind"], "html");
}

#[test]
fn a_bare_number_is_milliseconds() {
    for text in ["3", "3ms", "3000us"] {
        assert_eq!(think(text), Ok(Duration::from_millis(3)));
    }
    for text in ["1001", "2s", "-1", "soon"] {
        assert!(think(text).is_err(), "{text}");
    }
}

#[test]
fn a_round_trip_time_is_whole_milliseconds() {
    assert_eq!((rtt("40"), rtt("40ms"), rtt("1s")), (Ok(40), Ok(40), Ok(1000)));
    for text in ["0", "11s", "1500us", "-1", ""] {
        assert!(rtt(text).is_err(), "{text}");
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let bad: [&[&str]; 9] = [
        &["--loss", "51"],
        &["--loss", "NaN"],
        &["--mtu", "1279"],
        &["--initial-window", "0"],
        &["--congestion", "vegas"],
        &["--row", "fast"],
        &["--rtt", "20,x"],
        &["--waterfall", "w.svg"],
        &["--write", "--rtt", "20"],
    ];
    for arguments in bad {
        assert!(parse(arguments).is_err(), "{arguments:?}");
    }
}

/// Every setting of the line reaches the model: with each changed in turn the load takes another time.
#[test]
fn each_setting_changes_the_load() {
    let time = |arguments: &[&str]| {
        let options = parse(&[&["--rtt", "40"], arguments].concat()).unwrap();
        let window = *options.initial_window.last().unwrap();
        load(&page::all()[1], HANDSHAKE, &options.setting(options.rtt[0], window)).time
    };
    let before = time(&[]);
    for (change, slower) in [
        (&["--down", "2000"], true),
        (&["--up", "1000"], false),
        (&["--mtu", "1280"], true),
        (&["--loss", "3"], true),
        (&["--initial-window", "1"], true),
        (&["--request", "1000"], true),
        (&["--fields", "1000"], true),
    ] {
        let after = time(change);
        assert_eq!(after > before, slower, "{change:?}: {before:?} {after:?}");
    }
    assert_ne!(time(&["--buffer", "8"]), before);
    assert_ne!(time(&["--congestion", "bbr", "--buffer", "16"]), time(&["--buffer", "16"]));
}

/// One row alone is what it is in the whole table.
#[test]
fn a_row_alone_has_the_times_of_the_table() {
    let pages: Vec<_> = page::all().into_iter().take(1).collect();
    let whole = measure::measure(&options(), &pages).unwrap();
    let alone = parse(&["--row", "Sealed + asap", "--rtt", "100"]).unwrap();
    let results = measure::measure(&alone, &pages).unwrap();
    let cases: Vec<_> = results.cases().copied().collect();
    assert_eq!(cases.iter().map(|case| case.way.name).collect::<Vec<_>>(), ["TLS 1.3", "sealed + ASAP"]);
    for case in cases {
        assert_eq!(results.seconds(case), whole.seconds(case));
    }
    let text = report::text(&alone, &results);
    assert!(text.contains("\naverage, 10 segments\n") && !text.contains("the paper"), "{text}");
}

#[test]
fn a_waterfall_has_each_request_in_order() {
    let options = parse(&["--row", "handshake", "--rtt", "100", "--only", "average"]).unwrap();
    let pages = options.pages().unwrap();
    let file = |name: &str| measure::waterfall(&options, &pages, Path::new(name));
    let drawn: serde_json::Value = serde_json::from_str(&file("w.json").unwrap()).unwrap();
    let requests = drawn["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 44);
    for request in requests {
        let times =
            ["known_ms", "asked_ms", "first_ms", "loaded_ms", "done_ms"].map(|name| request[name].as_f64());
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{request}");
    }
    let carried = |of: &serde_json::Value| of["requests"].as_u64().unwrap();
    assert_eq!(drawn["connections"].as_array().unwrap().iter().map(carried).sum::<u64>(), 44);
    // Everything is there and processed when the page has loaded.
    let last = requests.iter().filter_map(|request| request["done_ms"].as_f64()).fold(0.0, f64::max);
    assert_eq!(Some(last), drawn["load_ms"].as_f64());
    let svg = file("w.svg").unwrap();
    assert!(svg.starts_with("<svg") && svg == file("w.svg").unwrap());
    assert!(file("w.png").unwrap_err().contains(".svg or .json"));
    let all = parse(&["--row", "handshake", "--rtt", "100"]).unwrap();
    assert!(
        measure::waterfall(&all, &page::all(), Path::new("w.svg")).unwrap_err().starts_with("--waterfall")
    );
}

/// A request that took a free connection counted as one that waits, so a connection too many was opened.
#[test]
fn without_reuse_no_connection_is_opened_for_nothing() {
    let once = options::row("handshake, no reuse").unwrap();
    for page in page::all() {
        let load = load(&page, once, &options().setting(200, Window::NOW));
        assert_eq!(load.counts.connections - load.unused(), page.resources.len(), "{}", page.name);
        assert!(load.unused() <= load.counts.backups, "{}: {} {:?}", page.name, load.unused(), load.counts);
    }
}

#[test]
fn preconnect_saves_by_its_hits_and_wastes_its_misses() {
    let page = &page::all()[0];
    let time = |way, hits| load(page, way, &Setting { hits, ..fast(200) });
    let plain = time(HANDSHAKE, 0.0);
    let [none, all] = [0.0, 1.0].map(|hits| time(PRECONNECT, hits));
    // A connection that was opened for a request can find it gone to another.
    assert!(none.unused() >= page.hosts - 1 && all.unused() <= 1, "{} {}", none.unused(), all.unused());
    assert_eq!(none.counts.lookups, 2 * page.hosts - 1);
    assert!(all.time + Duration::from_millis(200) < plain.time, "{:?} {:?}", all.time, plain.time);
    assert!(none.time >= plain.time, "{:?} {:?}", none.time, plain.time);
}

/// The thesis expects that what the lookup saves and what the handshake costs add up.
#[test]
fn with_names_that_are_not_cached_the_gains_add_up() {
    let page = &page::all()[0];
    let time = |name: &str| load(page, options::row(name).unwrap(), &fast(200)).time;
    let [plain, fast_open] = ["handshake", "Fast Open"].map(time);
    let (uncached, asap) = (time("handshake, names not cached"), time("ASAP, names not cached"));
    let inside = time("inside lookup, not cached");
    // The document's lookup alone is a round trip longer.
    assert!(uncached >= plain + Duration::from_millis(200));
    assert!(inside + Duration::from_millis(200) < asap, "{inside:?} {asap:?}");
    assert!(uncached - inside > plain - fast_open, "{uncached:?} {inside:?} {plain:?} {fast_open:?}");
}

/// A page with these resources: kind, host, parent, and whether it is in the head. They have 1000 bytes.
fn made(resources: &[(page::Kind, usize, usize, bool)]) -> page::Page {
    let resources: Vec<_> = (resources.iter().enumerate())
        .map(|(number, (kind, host, parent, blocks))| page::Resource {
            parent: *parent,
            blocks: *blocks,
            at: if *parent == 0 { number as f64 / resources.len() as f64 } else { 1.0 },
            ..page::Resource::new(*host, *kind, 1000)
        })
        .collect();
    let hosts = resources.iter().map(|resource| resource.host + 1).max().unwrap();
    page::Page { name: "made".into(), stands_for: None, hosts, resources }
}

/// Chromium raises images in view to high priority, and holds back only requests of less. The model held back all images.
#[test]
fn images_that_are_laid_out_are_not_held_back() {
    let page = &page::all()[2];
    let trace = load(page, FAST_OPEN, &options().setting(200, Window::NOW)).trace;
    let images = |at| {
        let under_way = trace.requests.iter().zip(&page.resources).filter(|(request, resource)| {
            resource.kind == page::Kind::Image && request.asked <= Some(at) && request.loaded > Some(at)
        });
        under_way.count()
    };
    let most = trace.requests.iter().filter_map(|request| request.asked).map(images).max();
    assert!(most > Some(10), "{most:?}");
}

/// What styles name is known when the page is laid out, not when the style has arrived.
#[test]
fn images_of_styles_are_known_when_the_head_is_complete() {
    use page::Kind::{Html, Image, Script, Style};
    let page = made(&[(Html, 0, 0, false), (Style, 0, 0, true), (Script, 1, 0, true), (Image, 0, 1, false)]);
    let trace = load(&page, HANDSHAKE, &fast(100)).trace;
    let [style, script] = [1, 2].map(|number| trace.requests[number].done);
    assert!(style < script && trace.requests[3].known == script, "{trace:?}");
}

/// Chromium opens a second connection after 250 ms, if the first of a host is not open by then.
#[test]
fn a_slow_first_connection_gets_a_second() {
    let page = made(&[(page::Kind::Html, 0, 0, false)]);
    let counts = |way, rtt| {
        let load = load(&page, way, &fast(rtt));
        (load.counts.connections, load.counts.backups, load.unused())
    };
    // The lookup takes a round trip, and the handshake another.
    assert_eq!(
        [20, 100, 200, 260].map(|rtt| counts(HANDSHAKE, rtt)),
        [(1, 0, 0), (1, 0, 0), (2, 1, 1), (2, 1, 1)]
    );
    // A socket with Fast Open counts as connected at once.
    assert_eq!(counts(FAST_OPEN, 200), (1, 0, 0));
}

/// What a load of one document sends: from the client or not, flags of TCP, bytes of payload.
fn packets(way: LoadWay, setting: &Setting) -> Vec<(bool, u8, usize)> {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let jitter = world::jitter(&page::all()[0], setting.think, 7, 0);
    let watch = |up: bool| {
        let seen = Arc::clone(&seen);
        move |packet: &mut Vec<u8>| {
            if packet.first().is_some_and(|first| first >> 4 == 4) {
                let tcp = &packet[usize::from(packet[0] & 15) * 4..];
                seen.lock().unwrap().push((up, tcp[13], tcp.len() - usize::from(tcp[12] >> 4) * 4));
            }
            FilterVerdict::Forward
        }
    };
    let (up, down) = (watch(true), watch(false));
    let page = made(&[(page::Kind::Html, 0, 0, false)]);
    let watched = world::load_on(&page, way, setting, &jitter, 7, |net| {
        net.up.set_filter(Box::new(up));
        net.down.set_filter(Box::new(down));
    });
    assert!(watched.is_some());
    seen.lock().unwrap().clone()
}

/// A kernel acknowledges before the program runs that the packet wakes, as Linux does.
#[test]
fn the_handshake_is_acknowledged_in_front_of_the_request() {
    const SYN: u8 = 2;
    let packets = packets(HANDSHAKE, &fast(20));
    let mut up =
        packets.iter().filter(|(up, ..)| *up).map(|(_, flags, payload)| (flags & SYN != 0, *payload));
    assert_eq!([up.next(), up.next(), up.next()], [Some((true, 0)), Some((false, 0)), Some((false, 450))]);
}

/// As with HTTP's `Connection: close`.
#[test]
fn without_reuse_the_server_ends_the_connection() {
    const FIN: u8 = 1;
    let once = options::row("handshake, no reuse").unwrap();
    let first = |way| packets(way, &fast(20)).into_iter().find(|(_, flags, _)| flags & FIN != 0);
    assert!(matches!(first(once), Some((false, ..))), "{:?}", first(once));
    assert_eq!(first(HANDSHAKE), None);
}

#[test]
fn a_response_has_the_length_that_is_set() {
    let setting = parse(&["--fields", "236", "--request", "351"]).unwrap().setting(20, Window::NOW);
    let packets = packets(HANDSHAKE, &setting);
    let bytes =
        |from: bool| packets.iter().filter(|(up, ..)| *up == from).map(|(.., bytes)| bytes).sum::<usize>();
    assert_eq!((bytes(true), bytes(false)), (351, 1236));
}

#[test]
fn the_browsers_own_time_delays_the_load() {
    let page = made(&[(page::Kind::Html, 0, 0, false), (page::Kind::Image, 0, 0, false)]);
    let time =
        |arguments: &[&str]| load(&page, HANDSHAKE, &parse(arguments).unwrap().setting(20, Window::NOW)).time;
    let before = time(&[]);
    assert_eq!(time(&["--setup", "30ms"]), before + Duration::from_millis(30));
    assert_eq!(time(&["--commit", "300ms"]), before + Duration::from_millis(300));
}
