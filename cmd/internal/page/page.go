package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

// Options say how the page presents itself.
type Options struct {
	// Namespace is the one that is shown first; empty: all.
	Namespace string
	// Program is the name of the program in the commands that the page shows for copying:
	// "millrace" or "kubectl millrace".
	Program string
	// Flags are added to those commands, such as the address of the bus.
	Flags []string
	// Recording is true if the record is a copy in a file, which does not grow.
	Recording bool
	// Version of the program.
	Version string
	// Hosts are the host names under which the page is served, besides localhost and IP
	// addresses.
	Hosts []string
	// Token is the secret that a client must have; empty: none is needed. See [Token].
	Token string
}

// page serves one record.
type page struct {
	Options
	archive  bus.Archive
	record   *record.Record
	standing *standing.Reader
	names    *directory
	lives    chan struct{} // one for each live view
	asked    chan struct{} // one for each question that is being answered
}

//go:embed site
var built embed.FS

// New serves the page of the record on a bus or in an exported file.
func New(archive bus.Archive, options Options) http.Handler {
	p := &page{Options: options, archive: archive, record: record.New(archive), standing: standing.New(archive), names: newDirectory(archive), lives: make(chan struct{}, liveViews), asked: make(chan struct{}, atOnce)}
	mux := http.NewServeMux()
	for at, find := range map[string]http.HandlerFunc{
		"overview": p.answer(overview), "search": p.answer(search), "state": p.answer(state), "chronicle": p.answer(chronicle),
		"history": p.answer(history), "object": p.answer(object), "diff": p.answer(answerDiff), "why": p.answer(why), "standing": p.answer(answerStanding),
		"lag": p.answer(lag), "live": p.live,
	} {
		mux.HandleFunc("/api/"+at, find)
	}
	mux.HandleFunc("/", files())
	return guard(options.Hosts, identified(options.Token, mux))
}

// files serves the files of the page. Their names have no version, so browsers
// revalidate them each time.
func files() http.HandlerFunc {
	type file struct {
		tag  string
		text []byte
	}
	all := map[string]file{}
	_ = fs.WalkDir(built, "site", func(at string, d fs.DirEntry, err error) error { // embedded: reading cannot fail
		if err != nil || d.IsDir() {
			return err
		}
		text, err := built.ReadFile(at)
		sum := sha256.Sum256(text)
		all[at[len("site"):]] = file{`"` + hex.EncodeToString(sum[:8]) + `"`, text}
		return err
	})
	return func(w http.ResponseWriter, q *http.Request) {
		at := q.URL.Path
		if at == "/" {
			at = "/index.html"
		}
		f, ok := all[at]
		if !ok {
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", f.tag)
		if kind, ok := contentTypes[path.Ext(at)]; ok { // regardless of this machine's MIME types
			w.Header().Set("Content-Type", kind)
		}
		http.ServeContent(w, q, at, time.Time{}, bytes.NewReader(f.text))
	}
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}
