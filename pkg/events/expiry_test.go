package events

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Only the expiry of a token is published. Every value that a user may write gives one with a
// JSON form, and a value that is no time is not repeated.
func TestExpiryOf(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for text, c := range map[string]struct {
		want       string
		before, at bool // has it passed a second before noon, and at noon
	}{
		"":                                     {want: `{}`},
		"2030-01-01T12:00:00Z":                 {want: `{"at":"2030-01-01T12:00:00Z"}`, at: true},
		"2030-01-01T13:00:00+01:00":            {want: `{"at":"2030-01-01T12:00:00Z"}`, at: true},
		"2030-01-01T11:59:59.5Z":               {want: `{"at":"2030-01-01T11:59:59.5Z"}`, at: true},
		"2030-01-01 12:00:00":                  {want: `{"unreadable":true}`, before: true, at: true},
		"never":                                {want: `{"unreadable":true}`, before: true, at: true},
		" ":                                    {want: `{"unreadable":true}`, before: true, at: true},
		"9999-12-31T23:59:59-23:59":            {want: `{"at":"9999-12-31T23:59:59Z"}`},
		"0000-01-01T00:00:00+23:59":            {want: `{"at":"0001-01-01T00:00:00Z"}`, before: true, at: true},
		"2030-01-01T12:00:00.000000000999999Z": {want: `{"at":"2030-01-01T12:00:00Z"}`, at: true},
	} {
		secret := &corev1.Secret{Type: BootstrapToken, Data: map[string][]byte{"expiration": []byte(text), "token-secret": []byte("x")}}
		got := ExpiryOf(secret)
		told, err := json.Marshal(got)
		if err != nil || string(told) != c.want {
			t.Errorf("%q: it tells %s (%v), want %s", text, told, err, c.want)
		}
		if before, at := got.Passed(noon.Add(-time.Second)), got.Passed(noon); before != c.before || at != c.at {
			t.Errorf("%q: it has passed before: %v, and then: %v", text, before, at)
		}
		secret.Type = corev1.SecretTypeOpaque
		if told, err = json.Marshal(ExpiryOf(secret)); err != nil || string(told) != `{"other":true}` || ExpiryOf(secret).Passed(noon) {
			t.Errorf("%q, of another type: it tells %s (%v)", text, told, err)
		}
	}
}
