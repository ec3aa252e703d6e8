package command

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// keysPage is where a process says how a key of a controller stands. A namespace of "-" is none,
// and ?kind= is the kind of a key that names one, such as the garbage collector's.
const keysPage = "/debug/keys/{controller}/{namespace}/{name}"

// keysTimeout bounds how long the services of a process have for the answer.
const keysTimeout = 2 * time.Second

// keyTeller adds to a report what a service knows of the key; false where the service does not
// run the controller, or does not answer before the context ends.
type keyTeller func(ctx context.Context, r *events.KeyReport) bool

// keysPages is the page, where a service has keys.
func keysPages(parts []part) map[string]http.Handler {
	var tellers []keyTeller
	for _, p := range parts {
		if p.key != nil {
			tellers = append(tellers, p.key)
		}
	}
	if len(tellers) == 0 {
		return nil
	}
	return map[string]http.Handler{keysPage: keysHandler(tellers)}
}

// keysHandler answers from what the services of this process know.
func keysHandler(tellers []keyTeller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), keysTimeout)
		defer cancel()
		report := events.KeyReport{Controller: r.PathValue("controller"), Key: events.Key{
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
