package busflags

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// TestRetentionFlag: the flag is parsed from the command line and from the file, in one or several
// occurrences, and every mistake is one error that says what to write.
func TestRetentionFlag(t *testing.T) {
	var r retention
	for _, text := range []string{"pods=72h/2Gi, leases.coordination.k8s.io=1h", "replicaset-controller=/500Mi"} {
		if err := r.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	want := retention{
		"pods": {Age: 72 * time.Hour, Bytes: 2 << 30}, "leases.coordination.k8s.io": {Age: time.Hour}, "replicaset-controller": {Bytes: 500 << 20},
	}
	if !maps.Equal(r, want) {
		t.Errorf("it is %v", r)
	}
	again := retention{}
	if err := again.Set(r.String()); err != nil || !maps.Equal(again, want) {
		t.Errorf("written as %q it is %v (%v)", r.String(), again, err)
	}
	for text, want := range map[string]string{
		"pods":                       "NAME=AGE/SIZE",
		"pods=":                      "neither an age nor a size",
		"pods=7d":                    "is no age",
		"pods=1m":                    "less than 10m0s",
		"pods=72h/lots":              "is no size",
		"pods=/1Mi":                  "less than 16Mi",
		"pod=72h":                    "neither a kind nor a controller",
		"deployments=72h":            "with the group",
		"replicasets-controller=72h": "no controller that Millrace has",
		"pods=72h,pods=1h":           "twice",
	} {
		r := retention{}
		if err := r.Set(text); err == nil || !strings.Contains(err.Error(), want) || len(r) != 0 {
			t.Errorf("%s is %v: %v; want an error that says %q, and nothing taken", text, r, err, want)
		}
	}
}
