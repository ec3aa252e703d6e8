package serviceflags

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/services/watcher/versions"
)

// TestObjectBound: the flag is parsed, formatted and refused.
func TestObjectBound(t *testing.T) {
	b := newObjectBound()
	if versions.Bound(b) != versions.DefaultBound || b.String() != "8Mi/100Ki" {
		t.Errorf("the default is %s", b.String())
	}
	for text, want := range map[string]versions.Bound{
		"16Mi/1Mi": {Burst: 16 << 20, PerSecond: 1 << 20}, "none": {Burst: -1, PerSecond: -1},
	} {
		if err := b.Set(text); err != nil || versions.Bound(b) != want || b.String() != text {
			t.Errorf("%s is read as %v and written as %s (%v)", text, versions.Bound(b), b.String(), err)
		}
	}
	for _, text := range []string{"", "8Mi", "8Mi/", "0/1", "1/0", "-1/1", "8Mi/fast"} {
		before := b
		if err := b.Set(text); err == nil || !strings.Contains(err.Error(), "BURST/RATE") || b != before {
			t.Errorf("%q: %v, and the bound is %s", text, err, b.String())
		}
	}
}
