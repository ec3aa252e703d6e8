package apiservertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is an object as JSON has it, with whole numbers as int64. A stored object does not change any more.
type Object = map[string]any

// change is a change of the past; a bookmark has no path.
type change struct {
	version int
	what    string // the type of the watch event
	path    string
	object  Object
}

// store is the storage: what there is, and how it came to be.
type store struct {
	version int
	oldest  int // versions before it were compacted
	objects map[string]Object
	base    map[string]Object // the objects at the beginning of the history
	history []change
	created map[string]int // how often a request created an object at a path
}

// at returns the objects at a version.
func (s *store) at(version int) map[string]Object {
	if version >= s.version {
		return s.objects
	}
	objects := maps.Clone(s.base)
	for _, c := range s.history {
		if c.version > version {
			break
		}
		switch c.what {
		case "ADDED", "MODIFIED":
			objects[c.path] = c.object
		case "DELETED":
			delete(objects, c.path)
		}
	}
	return objects
}

// since returns the changes after a version.
func (s *store) since(version int) []change {
	after, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, v int) int { return cmp.Compare(c.version, v) })
	return s.history[after:]
}

// Put stores an object at a path and returns the version of the write. Without a uid the object
// keeps the one that it has, or that of the object at the path, or gets a new one.
func (s *Server) Put(path, uid string, object any) (version string) {
	stored := decoded(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(path, uid, stored)
}

func (s *Server) put(path, uid string, object Object) string {
	s.store.version++
	version, what := strconv.Itoa(s.store.version), "ADDED"
	was, there := s.store.objects[path]
	if there {
		what = "MODIFIED"
	}
	metadata := maps.Clone(metadataOf(object))
	own, _ := metadata["uid"].(string)
	before, _ := metadataOf(was)["uid"].(string)
	metadata["uid"], metadata["resourceVersion"] = cmp.Or(uid, own, before, "uid-"+version), version
	object["metadata"] = metadata
	s.complete(path, object)
	s.store.objects[path] = object
	s.tell(change{s.store.version, what, path, object})
	return version
}

// complete gives an object the name, the namespace and the kind that its path shows.
func (s *Server) complete(path string, object Object) {
	p, metadata := parse(path), metadataOf(object)
	if p.sub != "" {
		return
	}
	fill := func(of Object, field, value string) {
		if has, _ := of[field].(string); has == "" && value != "" {
			of[field] = value
		}
	}
	fill(metadata, "name", p.name)
	fill(metadata, "namespace", p.namespace)
	if kind := s.kindOf(p); kind != "" {
		fill(object, "kind", kind)
		fill(object, "apiVersion", p.groupVersion())
	}
}

// tell records a change, and wakes the watches.
func (s *Server) tell(c change) {
	s.store.history = append(s.store.history, c)
	if s.observe != nil && c.path != "" {
		s.observe(c.what, c.object)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Get returns the object at a path, nil if there is none.
func (s *Server) Get(path string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.objects[path]
}

// Remove deletes an object, whatever its preconditions.
func (s *Server) Remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(path)
}

// end deletes an object, if it exists. Its last version is that of the delete.
func (s *Server) end(path string) {
	object, there := s.store.objects[path]
	if !there {
		return
	}
	s.store.version++
	last := maps.Clone(object)
	metadata := maps.Clone(metadataOf(object))
	metadata["resourceVersion"] = strconv.Itoa(s.store.version)
	last["metadata"] = metadata
	delete(s.store.objects, path)
	s.tell(change{s.store.version, "DELETED", path, last})
}

// Paths returns the paths of all objects, sorted.
func (s *Server) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.store.objects))
}

// Created returns how often a request created an object at a path.
func (s *Server) Created(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.created[path]
}

// Version returns the newest version.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.store.version)
}

// Bookmark raises the version without a change, and sends it to the watches.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.version++
	s.tell(change{version: s.store.version, what: "BOOKMARK"})
}

// Compact lets the server forget the versions before the present one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.oldest = s.store.version
}

// Restore takes the storage back to a version that it has had, as from a backup. It ends every
// watch.
func (s *Server) Restore(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutWatches()
	s.store.objects = maps.Clone(s.store.at(version))
	s.store.history = slices.Clip(s.store.history[:len(s.store.history)-len(s.store.since(version))])
	s.store.version = version
}

// Load replaces the storage by another one, which has no history: it is at a version and has
// objects at their paths, with the uids and versions that they bring along. It ends every watch.
func (s *Server) Load(version int, objects map[string]any) {
	loaded := map[string]Object{}
	for path, object := range objects {
		loaded[path] = decoded(object)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutWatches()
	for path, object := range loaded {
		s.complete(path, object)
	}
	s.store = store{version: version, objects: loaded, base: maps.Clone(loaded), created: s.store.created}
}

// decoded returns an object as JSON has it, which shares nothing with the given one.
func decoded(object any) (copied Object) {
	text, err := json.Marshal(object)
	if err == nil {
		err = utiljson.Unmarshal(text, &copied)
	}
	if err != nil || copied == nil {
		panic(fmt.Sprintf("%v is no object: %v", object, err)) // a mistake of the test
	}
	if _, has := copied["metadata"].(Object); !has {
		copied["metadata"] = Object{}
	}
	return copied
}

func metadataOf(object Object) Object {
	metadata, ok := object["metadata"].(Object)
	if !ok {
		metadata = Object{}
	}
	return metadata
}

// place is what a path names: an object, its subresource or, without a name, a collection.
type place struct{ group, version, namespace, resource, name, sub string }

// parse reads a path; its place has no resource if it is none of an object or collection.
func parse(path string) (p place) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		p.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		p.group, p.version, parts = parts[1], parts[2], parts[3:]
	default:
		return p
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.resource = parts[0]
	if len(parts) > 1 {
		p.name, p.sub = parts[1], strings.Join(parts[2:], "/")
	}
	return p
}

func (p place) groupVersion() string { return strings.TrimPrefix(p.group+"/"+p.version, "/") }

// holds reports whether an object is in a collection, of one namespace or of all.
func (p place) holds(path string) bool {
	o := parse(path)
	return o.name != "" && o.sub == "" && o.group == p.group && o.version == p.version && o.resource == p.resource &&
		(p.namespace == "" || p.namespace == o.namespace)
}
