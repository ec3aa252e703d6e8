package query

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

func TestRangesAreReadAsTheAPIServerReadsThem(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.1.0/24": "10.0.1.0/24", "10.0.1.7/24": "10.0.1.0/24", "010.000.01.0/24": "10.0.1.0/24", "fd00::1/64": "fd00::/64",
		"::ffff:10.0.1.0/120": "10.0.1.0/24", "": "", "10.0.1.0": "", "10.0.0.0/33": "", "10..0.0/8": "", "a.b.c.d/8": "", "010.0.0/8": "",
	} {
		r, err := ParseRange(text)
		if err == nil != (want != "") || err == nil && r.String() != want {
			t.Errorf("%q is %v, %v; want %q", text, r, err, want)
		}
	}
}

func TestRangesOfABody(t *testing.T) {
	for body, want := range map[string]string{
		`{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24","fd00::/64"]}}`: "10.0.1.0/24 fd00::/64",
		`{"spec":{"podCIDR":"10.0.2.0/24","podCIDRs":["10.0.1.0/24"]}}`:             "10.0.1.0/24 10.0.2.0/24",
		`{"spec":{"podCIDR":"10.0.2.0/24"}}`:                                        "10.0.2.0/24",
		`{"spec":{"podCIDRs":["x"]}}`:                                               "",
		`{"spec":{"podCIDRs":[]}}`:                                                  "",
		`{"spec":{"podCIDRs":null}}`:                                                "",
		`{"spec":{"podCIDRs":"10.0.1.0/24"}}`:                                       "",
		`{"spec":{"podCIDR":"10.0.2.0/24","podCIDRs":7}}`:                           "",
		`null`: "",
	} {
		ranges, err := RangesIn(json.RawMessage(body))
		var texts []string
		for _, r := range ranges {
			texts = append(texts, r.String())
		}
		if got := strings.Join(texts, " "); got != want || err == nil != (want != "") {
			t.Errorf("%s gives %q, %v; want %q", body, got, err, want)
		}
	}
}

func TestWhichRangesOverlap(t *testing.T) {
	o := Ranged{Ranges: []string{"bad", "10.0.1.0/24", "fd00:0:0:1::/64"}}
	for text, overlaps := range map[string]bool{
		"10.0.1.0/24": true, "10.0.0.0/8": true, "10.0.1.128/25": true, "fd00::/16": true, "10.0.2.0/24": false, "fd00::/64": false,
	} {
		r := netip.MustParsePrefix(text)
		if which, some := o.Overlaps([]netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), r}); some != overlaps || some && which != r {
			t.Errorf("%s overlaps: %v, %t", text, which, some)
		}
	}
	if HasRanges("pods") || !HasRanges("nodes") {
		t.Error("ranges are looked for of other kinds than nodes")
	}
}
