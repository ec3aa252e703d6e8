package printer

import (
	"bytes"
	"testing"
)

func TestTablesAreAligned(t *testing.T) {
	for when, want := range map[string]string{
		"never":  "NAME   STATE\na      ok\nlöng   bad\n",
		"always": "\x1b[1mNAME\x1b[0m   \x1b[1mSTATE\x1b[0m\na      ok\nlöng   \x1b[31mbad\x1b[0m\n",
		"auto":   "NAME   STATE\na      ok\nlöng   bad\n",
	} {
		var out bytes.Buffer
		p, err := NewPaper(&out, when)
		if err != nil {
			t.Fatal(err)
		}
		p.Table([]string{"NAME", "STATE"}, [][]Cell{Cells("a", "ok"), {{Text: "löng"}, {"bad", Red}}})
		if out.String() != want {
			t.Errorf("%s: %q, want %q", when, out.String(), want)
		}
	}
	if _, err := NewPaper(nil, "sometimes"); err == nil {
		t.Error("sometimes is no choice")
	}
}
