package query

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// A Secret in kube-system signs depending on its name, its type and its data, until it expires.
// Each of these alone prevents it.
func TestWhichTokensSign(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	token := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{Type: BootstrapToken, Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte("sesame"), "usage-bootstrap-signing": []byte("true"), "expiration": []byte(noon.Format(time.RFC3339)),
		}}
		s.Namespace, s.Name = "kube-system", "bootstrap-token-abc123"
		change(s)
		return s
	}
	says := func(field, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[field] = []byte(value) }
	}
	early := noon.Add(-time.Second)
	for name, c := range map[string]struct {
		change     func(*corev1.Secret)
		name, sign bool // may it by its name, and does it
	}{
		"as it should be":        {func(*corev1.Secret) {}, true, true},
		"without an end":         {says("expiration", ""), true, true},
		"another namespace":      {func(s *corev1.Secret) { s.Namespace = "default" }, false, false},
		"another name":           {func(s *corev1.Secret) { s.Name = "token-abc123" }, false, false},
		"a longer name":          {func(s *corev1.Secret) { s.Name += "4" }, false, false},
		"a shorter name":         {func(s *corev1.Secret) { s.Name = "bootstrap-token-abc12" }, false, false},
		"a name before its name": {func(s *corev1.Secret) { s.Name = "x" + s.Name }, false, false},
		"capital letters":        {func(s *corev1.Secret) { s.Name = "bootstrap-token-ABC123" }, false, false},
		"another id":             {says("token-id", "abc124"), true, false},
		"no secret":              {says("token-secret", ""), true, false},
		"not for signing":        {says("usage-bootstrap-signing", "false"), true, false},
		"signing without a word": {func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-signing") }, true, false},
		"another type":           {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, true, false},
		"an end that is none":    {says("expiration", "never"), true, false},
		"an end that has passed": {says("expiration", early.Format(time.RFC3339)), true, false},
	} {
		s := token(c.change)
		if id, may := MaySign(s); may != c.name || may && id != "abc123" || !may && id != "" {
			t.Errorf("%s: the name may sign: %t, as %q; want %t", name, may, id, c.name)
		}
		id, key, may := SignerOf(s, early)
		if may != c.sign || may && (id != "abc123" || key != "sesame") || !may && id+key != "" {
			t.Errorf("%s: the token signs: %t, as %q with %q; want %t", name, may, id, key, c.sign)
		}
		if _, _, may := SignerOf(s, noon); may && name != "without an end" {
			t.Errorf("%s: the token signs when it has expired", name)
		}
	}
	other := &unstructured.Unstructured{}
	other.SetNamespace("kube-system")
	other.SetName("bootstrap-token-zz9zz9")
	if id, may := MaySign(other); !may || id != "zz9zz9" {
		t.Errorf("an object that is known by its metadata may sign: %t, as %q", may, id)
	}
}
