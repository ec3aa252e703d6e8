package corpus

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

var (
	others = flag.String("corpus.dir", "", "directory with more records, each of whose turns must be decided as it was")
	update = flag.Bool("corpus.update", false, "write down what the records in testdata are of, instead of comparing")
)

const manifest = "testdata/corpus.json"

// Entry describes a record.
type Entry struct {
	SHA256  string `json:"sha256"`
	Program string `json:"program"` // the program that recorded it
	Commit  string `json:"commit"`  // the commit of that program
	Turns   int    `json:"turns"`
	Changes int    `json:"changes"`
	// Controllers is the number of turns of each controller.
	Controllers map[string]int `json:"controllers"`
	// Unjudged is the number of turns for which the record lacks a part of the view, by reason:
	// simulated streams lose messages.
	Unjudged map[replay.Why]int `json:"unjudged,omitempty"`
}

// file is a record and its source.
type file struct {
	name string // of the file, or for a zip file of the record in it
	data []byte
}

// records are all records in a directory: in files of their own, and in zip files.
func records(t *testing.T, dir string) (all []file) {
	t.Helper()
	for _, pattern := range []string{"*.millrace", "*.zip"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(name) == ".zip" {
				all = append(all, unpack(t, filepath.Base(name), data)...)
			} else {
				all = append(all, file{filepath.Base(name), data})
			}
		}
	}
	return all
}

func unpack(t *testing.T, name string, data []byte) (all []file) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, file{name + "/" + f.Name, content})
	}
	return all
}

// again decides a record again. The test fails for turns that are decided differently.
func (f file) again(t *testing.T) (e Entry) {
	t.Helper()
	sum := sha256.Sum256(f.data)
	a, err := archive.New(f.name, bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	e = Entry{SHA256: hex.EncodeToString(sum[:]), Program: a.About().Program, Controllers: map[string]int{}}
	s, err := replay.Run(t.Context(), a, replay.Options{Make: controllers.Again}, func(c replay.Case) error {
		e.Controllers[c.Controller]++
		if c.Verdict == replay.Differs {
			now := c.Broken
			if c.Now != nil {
				now = c.Now.Because
			}
			t.Errorf("%s: turn %d of %s for %v is decided otherwise: then %q, now %q", f.name, c.Sequence, c.Controller, c.Turn.Key, c.Turn.Because, now)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	e.Turns, e.Changes, e.Unjudged = s.Turns, s.Deltas, s.Unjudged
	return e
}

func recorded(t *testing.T) map[string]Entry {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if *update && errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	var known map[string]Entry
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatalf("read %s: %v", manifest, err)
	}
	return known
}

// Every kept turn is decided as before, and as many turns as ever can be judged.
func TestRecordsAreDecidedAsTheyWere(t *testing.T) {
	got := map[string]Entry{}
	for _, f := range records(t, "testdata") {
		got[f.name] = f.again(t)
	}
	if *others != "" {
		decideOthers(t)
	}
	if *update {
		write(t, got)
	}
	known := recorded(t)
	if missing := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool { _, is := got[name]; return is }); len(missing) > 0 {
		t.Errorf("%s has records that are gone: %v", manifest, missing)
	}
	for name, e := range got {
		want, is := known[name]
		want.Commit = e.Commit
		if !is || e.SHA256 != want.SHA256 {
			t.Errorf("%s is not the record that %s tells of", name, manifest)
		} else if e.Turns != want.Turns || e.Changes != want.Changes || !maps.Equal(e.Unjudged, want.Unjudged) || !maps.Equal(e.Controllers, want.Controllers) {
			t.Errorf("%s: replayed is %+v, and recorded %+v", name, e, want)
		}
	}
}

// A corpus in which a controller makes no decision does not protect that controller.
func TestEveryControllerIsInTheCorpus(t *testing.T) {
	turns := map[string]int{}
	for _, e := range recorded(t) {
		for c, n := range e.Controllers {
			turns[c] += n
		}
	}
	for _, e := range controllers.Catalog() {
		if e.Exists() && turns[e.Name] == 0 {
			t.Errorf("no turn of %s is in the corpus", e.Name)
		}
	}
}

// decideOthers decides records again that are too large for the repository.
func decideOthers(t *testing.T) {
	t.Helper()
	files := records(t, *others)
	if len(files) == 0 {
		t.Fatalf("no file *.millrace or *.zip in %s", *others)
	}
	for _, f := range files {
		e := f.again(t)
		t.Logf("%s: %d turns on %d changes; not judged: %v", f.name, e.Turns, e.Changes, e.Unjudged)
	}
}

// write writes the manifest.
func write(t *testing.T, got map[string]Entry) {
	t.Helper()
	commit, err := evidence.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := recorded(t)
	for name, e := range got {
		e.Commit = commit
		if kept, is := known[name]; is && kept.SHA256 == e.SHA256 {
			e.Commit = kept.Commit
		}
		got[name] = e
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, []byte(strings.TrimSpace(string(text))+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
