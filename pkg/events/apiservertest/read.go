package apiservertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// read answers a GET of an object or of a collection.
func (s *Server) read(r Request) (int, any) {
	if object, ok := s.store.objects[r.Path]; ok {
		return http.StatusOK, form(r, object)
	}
	of := parse(r.Path)
	switch {
	case of.resource == "":
		return http.StatusNotFound, nil
	case of.name != "":
		return failure(http.StatusNotFound, r.Path+" does not exist")
	default:
		return s.list(r, of)
	}
}

// list answers with a collection as it is, as it was, or with the next page of it. A token of the
// server has a position and the version of the list; one without a version goes on in the newest.
func (s *Server) list(r Request, of place) (int, any) {
	version, token := s.store.version, r.Query.Get("continue")
	position, asked, _ := strings.Cut(token, "@")
	if r.Query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) {
		asked = r.Query.Get("resourceVersion")
	}
	if asked != "" {
		version, _ = strconv.Atoi(asked)
	}
	from, _ := strconv.Atoi(position)
	switch {
	case version < s.store.oldest:
		return failure(http.StatusGone, "the version was compacted")
	case version > s.store.version:
		return tooLarge()
	}
	items, objects := []any{}, s.store.at(version)
	for _, path := range slices.Sorted(maps.Keys(objects)) {
		if of.holds(path) && selects(r, objects[path]) {
			items = append(items, form(r, objects[path]))
		}
	}
	metadata := Object{"resourceVersion": strconv.Itoa(version)}
	from = min(from, len(items))
	if limit, err := strconv.Atoi(r.Query.Get("limit")); err == nil && limit > 0 && from+limit < len(items) {
		metadata["continue"] = fmt.Sprint(from+limit, "@", version)
		items = items[:from+limit]
	}
	list := Object{"apiVersion": of.groupVersion(), "kind": s.kindOf(of) + "List", "metadata": metadata, "items": items[from:]}
	if metadataOnly(r) {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return http.StatusOK, list
}

// tooLarge refuses to read a version that there has not been yet.
func tooLarge() (int, any) {
	refused := status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version")
	refused.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	return http.StatusGatewayTimeout, refused
}

// metadataOnly reports whether a client wants no more than the metadata of objects.
func metadataOnly(r Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	return strings.Contains(first, "as=PartialObjectMetadata")
}

// form returns an object in the form that a request accepts.
func form(r Request, object Object) Object {
	if !metadataOnly(r) {
		return object
	}
	return Object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]}
}

// selects reports whether the selectors of a request select an object. They select by equality.
func selects(r Request, object Object) bool {
	for field, want := range equalities(r.Query.Get("fieldSelector")) {
		if valueAt(object, strings.Split(field, ".")) != want {
			return false
		}
	}
	for label, want := range equalities(r.Query.Get("labelSelector")) {
		if valueAt(object, []string{"metadata", "labels", label}) != want {
			return false
		}
	}
	return true
}

func equalities(selector string) map[string]string {
	all := map[string]string{}
	for part := range strings.SplitSeq(selector, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			all[key] = strings.TrimPrefix(value, "=")
		}
	}
	return all
}

// valueAt returns the text in a field of an object, "" if there is none.
func valueAt(object Object, fields []string) string {
	var value any = object
	for _, field := range fields {
		within, _ := value.(Object)
		value = within[field]
	}
	text, _ := value.(string)
	return text
}

// watcher is a watch that has begun.
type watcher struct {
	s       *Server
	w       http.ResponseWriter
	r       *Request
	of      place
	version int           // it has been sent everything up to this version
	cut     chan struct{} // closed when it is to end
}

// watch answers a watch until the client, the test or its time-out ends it.
func (s *Server) watch(w http.ResponseWriter, in *http.Request, r *Request, fault Fault, wait func()) {
	watch := &watcher{s: s, w: w, r: r, of: parse(r.Path)}
	refusal, list := watch.begin()
	if refusal != 0 {
		code, body := failure(refusal, "the watch cannot begin there")
		switch refusal {
		case http.StatusNotFound:
			s.unknown(w, r)
			return
		case http.StatusGatewayTimeout:
			code, body = tooLarge()
		}
		s.reply(w, r, code, body)
		return
	}
	var timeout <-chan time.Time
	if seconds, err := strconv.Atoi(r.Query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.After(time.Duration(seconds) * time.Second)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	if fault.Lost {
		panic(http.ErrAbortHandler)
	}
	wait()
	for _, event := range list {
		_ = json.NewEncoder(w).Encode(event)
	}
	for {
		changed := watch.tell()
		w.(http.Flusher).Flush()
		select {
		case <-in.Context().Done():
			return
		case <-watch.cut:
			return
		case <-timeout:
			return
		case <-changed:
		}
	}
}

type event struct {
	Type   string `json:"type"`
	Object Object `json:"object"`
}

// begin returns why the watch cannot begin, or the objects that it begins with.
func (w *watcher) begin() (refusal int, list []event) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w.version, _ = strconv.Atoi(w.r.Query.Get("resourceVersion"))
	w.cut = s.cut
	streamed := w.r.Query.Get("sendInitialEvents") == "true"
	switch {
	case w.of.resource == "" || s.takenAway(w.r.Path):
		return http.StatusNotFound, nil
	case w.version > s.store.version:
		return http.StatusGatewayTimeout, nil
	case !streamed && w.version != 0 && w.version < s.store.oldest:
		return http.StatusGone, nil
	}
	w.r.Code = http.StatusOK
	if !streamed && w.version != 0 {
		return 0, nil
	}
	for _, path := range slices.Sorted(maps.Keys(s.store.objects)) {
		if object := s.store.objects[path]; w.of.holds(path) && selects(*w.r, object) {
			list = append(list, event{"ADDED", form(*w.r, object)})
		}
	}
	w.version = s.store.version
	if streamed {
		list = append(list, w.bookmark(w.version, map[string]any{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return 0, list
}

func (w *watcher) bookmark(version int, annotations map[string]any) event {
	metadata := Object{"resourceVersion": strconv.Itoa(version)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return event{"BOOKMARK", form(*w.r, Object{"apiVersion": w.of.groupVersion(), "kind": w.s.kindOf(w.of), "metadata": metadata})}
}

// tell sends what has changed, and returns what the next change closes.
func (w *watcher) tell() (changed chan struct{}) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.cut != s.cut {
		return s.changed // the watch is over
	}
	bookmarks := w.r.Query.Get("allowWatchBookmarks") == "true"
	for _, c := range s.store.since(w.version) {
		w.version = c.version
		switch {
		case c.what == "BOOKMARK" && bookmarks:
			_ = json.NewEncoder(w.w).Encode(w.bookmark(c.version, nil))
		case c.path != "" && w.of.holds(c.path) && selects(*w.r, c.object):
			_ = json.NewEncoder(w.w).Encode(event{c.what, form(*w.r, c.object)})
		}
	}
	return s.changed
}
