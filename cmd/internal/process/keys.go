package process

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// keysPage is the path of the state of one key of a controller. The namespace "-" stands for none,
// and ?kind= is the kind, for keys that have one, such as the garbage collector's.
const keysPage = "/debug/keys/{controller}/{namespace}/{name}"

// keysTimeout is how long the services of a process may take to answer.
const keysTimeout = 2 * time.Second

// KeyTeller adds what a service knows of a key to the report. It returns false if the service does
// not run the controller, or does not answer before the context ends.
type KeyTeller func(ctx context.Context, r *report.KeyReport) bool

// keysPages has the handler of keysPage; nil if no part has keys.
func keysPages(parts []Part) map[string]http.Handler {
	var tellers []KeyTeller
	for _, p := range parts {
		if p.Key != nil {
			tellers = append(tellers, p.Key)
		}
	}
	if len(tellers) == 0 {
		return nil
	}
	return map[string]http.Handler{keysPage: keysHandler(tellers)}
}

// keysHandler collects a report from the services of this process.
func keysHandler(tellers []KeyTeller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), keysTimeout)
		defer cancel()
		report := report.KeyReport{Controller: r.PathValue("controller"), Key: events.Key{
			Kind: kinds.Name(r.URL.Query().Get("kind")), Namespace: r.PathValue("namespace"), Name: r.PathValue("name"),
		}}
		if report.Key.Namespace == "-" {
			report.Key.Namespace = ""
		}
		answered := false
		for _, tell := range tellers {
			answered = tell(ctx, &report) || answered
		}
		if !answered {
			http.Error(w, "this process does not run the controller "+report.Controller+", or is too busy to say", http.StatusNotFound)
			return
		}
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(text, '\n')) // a client that has gone needs no answer
	})
}
