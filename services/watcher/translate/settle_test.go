package translate_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

func TestSettle(t *testing.T) {
	kind := func(version string, form kinds.Form) kinds.Kind {
		return kinds.Kind{Name: "widgets.example.com", Version: version, Kind: "Widget", Namespaced: true, Form: form}
	}
	other := kind("v1", kinds.Metadata)
	other.Namespaced = false
	for name, c := range map[string]struct {
		have, want kinds.Kind
		served     bool // have's version
		remake     bool
	}{
		"the same":                          {kind("v1", kinds.Full), kind("v1", kinds.Full), true, false},
		"full answers for metadata":         {kind("v1", kinds.Full), kind("v1", kinds.Metadata), false, false},
		"metadata does not answer for full": {kind("v1", kinds.Metadata), kind("v1", kinds.Full), true, true},
		"full in another version":           {kind("v1", kinds.Full), kind("v2", kinds.Full), true, true},
		"metadata in a version still served": {
			kind("v1", kinds.Metadata), kind("v2", kinds.Metadata), true, false},
		"metadata in a version served no more": {
			kind("v1", kinds.Metadata), kind("v2", kinds.Metadata), false, true},
		"another scope": {other, kind("v1", kinds.Metadata), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			use, remake := translate.Settle(c.have, c.want, func(string) bool { return c.served })
			if remake != c.remake {
				t.Errorf("remake is %t, want %t", remake, c.remake)
			}
			if want := map[bool]kinds.Kind{true: c.want, false: c.have}[remake]; use != want {
				t.Errorf("use %+v, want %+v", use, want)
			}
		})
	}
}

func TestSecretsInFullAreMadeAnew(t *testing.T) {
	have := kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Full}
	want := have
	want.Form = kinds.Metadata
	if use, remake := translate.Settle(have, want, func(string) bool { return true }); !remake || use != want {
		t.Errorf("use %+v, remake %t", use, remake)
	}
}
