package credentials

import (
	"testing"
)

// with creates a missing status, and appends to the lists of an existing one.
func TestAStatusIsPutIntoAnObject(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":1}`:                            `{"a":1,"status":{"certificate":"eA==","conditions":[2]}}`,
		`{"status":{"conditions":[1]}}`:      `{"status":{"certificate":"eA==","conditions":[1,2]}}`,
		`{"status":{"certificate":"old"}}`:   `{"status":{"certificate":"eA==","conditions":[2]}}`,
		`{"status":{"n":12345678901234567}}`: `{"status":{"certificate":"eA==","conditions":[2],"n":12345678901234567}}`,
	} {
		if got, err := with([]byte(object), map[string]any{"certificate": []byte("x"), "conditions": []any{2}}); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v, want %s", object, got, err, want)
		}
	}
	if got, err := with([]byte(`7`), nil); err == nil {
		t.Errorf("a status is put into a body that is no object: %s", got)
	}
}
