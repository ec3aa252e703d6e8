package evidence

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file has the figures unchanged, together with date, machine and commit.
func TestFiguresAreWithTheirCommit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "evidence", "a.json")
	if err := Write(t.Context(), file, map[string]any{"seed": uint64(1<<63 + 1)}); err != nil {
		t.Fatal(err)
	}
	var said struct {
		Commit, Date, Machine string
		Seed                  uint64
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	commit, err := Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said.Commit != commit || len(strings.TrimSuffix(commit, ", and changes")) != 40 || said.Date == "" || said.Machine == "" || said.Seed != 1<<63+1 {
		t.Errorf("%s", text)
	}
	if err := Write(t.Context(), file, map[string]any{"commit": "of before"}); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(file); err != nil || !strings.Contains(string(text), `"commit": "of before"`) {
		t.Errorf("%s, %v", text, err)
	}
	if err := Write(t.Context(), file, []int{1}); err == nil {
		t.Error("a list is taken for figures")
	}
}
