use super::*;

/// The paper's §1 and §6.1, and its reference [25].
#[test]
fn the_average_page_is_the_papers() {
    let page = AVERAGE.page();
    assert_eq!((page.resources.len(), page.hosts), (44, 7));
    let mut sizes: Vec<usize> = page.resources.iter().map(|resource| resource.size).collect();
    sizes.sort_unstable();
    assert!(page.bytes() > 300_000, "{}", page.bytes());
    let mean = page.bytes() / sizes.len();
    assert!((7_200..=7_300).contains(&mean), "{mean}");
    let median = (sizes[21] + sizes[22]) / 2;
    assert!((2_300..=2_600).contains(&median), "{median}");
}

#[test]
fn every_host_has_a_resource_and_every_parent_comes_first() {
    for page in all() {
        for host in 0..page.hosts {
            assert!(page.resources.iter().any(|resource| resource.host == host), "{} {host}", page.name);
        }
        for (number, resource) in page.resources.iter().enumerate().skip(1) {
            assert!(resource.parent < number && resource.host < page.hosts && resource.size > 0);
        }
    }
}

#[test]
fn quantiles_of_the_normal_distribution() {
    for (share, wanted) in [(0.5, 0.0), (0.975, 1.959_964), (0.1, -1.281_552)] {
        assert!((normal(share) - wanted).abs() < 1e-5, "{share}");
    }
}
