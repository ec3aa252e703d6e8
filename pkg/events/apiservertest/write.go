package apiservertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// create answers a POST to a collection.
func (s *Server) create(r Request) (int, any) {
	var object Object
	if err := utiljson.Unmarshal(r.Body, &object); err != nil {
		return failure(http.StatusBadRequest, err.Error())
	}
	metadata := metadataOf(object)
	name, _ := metadata["name"].(string)
	if prefix, _ := metadata["generateName"].(string); name == "" && prefix != "" {
		name = fmt.Sprint(prefix, s.store.version+1)
		metadata["name"] = name
	}
	path := r.Path + "/" + name
	switch _, exists := s.store.objects[path]; {
	case name == "":
		return failure(http.StatusUnprocessableEntity, "metadata.name: Required value")
	case metadata["resourceVersion"] != nil && metadata["resourceVersion"] != "":
		return failure(http.StatusBadRequest, "resourceVersion should not be set on objects to be created")
	case exists:
		return http.StatusConflict, status(http.StatusConflict, metav1.StatusReasonAlreadyExists, path+" already exists")
	}
	if !r.Query.Has("dryRun") {
		s.store.created[path]++
		delete(metadata, "uid")
		s.put(path, "", object)
	}
	return http.StatusCreated, form(r, object)
}

// change answers a PUT or a PATCH of an object or of its subresource.
func (s *Server) change(r Request) (int, any) {
	path, of := r.Path, parse(r.Path)
	if of.sub != "" && s.store.objects[path] == nil {
		path = path[:len(path)-len(of.sub)-1]
	}
	live, ok := s.store.objects[path]
	if !ok {
		return failure(http.StatusNotFound, path+" does not exist")
	}
	var change Object
	if err := utiljson.Unmarshal(r.Body, &change); err != nil {
		return failure(http.StatusBadRequest, err.Error())
	}
	was, wanted := metadataOf(live), metadataOf(change)
	for _, field := range []string{"uid", "resourceVersion"} {
		if wanted[field] != nil && wanted[field] != was[field] {
			return failure(http.StatusConflict, field+" is another one")
		}
	}
	next := change
	if r.Method == http.MethodPatch {
		next = merged(live, change)
	}
	if path != r.Path { // a subresource never changes the spec
		delete(next, "spec")
		if spec, has := live["spec"]; has {
			next["spec"] = spec
		}
	}
	if !r.Query.Has("dryRun") {
		uid, _ := was["uid"].(string)
		s.put(path, uid, next)
	}
	return http.StatusOK, form(r, next)
}

// merged returns an object with a merge patch applied to it.
func merged(object, patch Object) Object {
	next := maps.Clone(object)
	for field, value := range patch {
		within, is := value.(Object)
		switch was, has := next[field].(Object); {
		case value == nil:
			delete(next, field)
		case is && has:
			next[field] = merged(was, within)
		case is:
			next[field] = merged(Object{}, within)
		default:
			next[field] = value
		}
	}
	return next
}

// remove answers a DELETE of an object.
func (s *Server) remove(r Request) (int, any) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(r.Body, &options); len(r.Body) > 0 && err != nil {
		return failure(http.StatusBadRequest, err.Error())
	}
	object, ok := s.store.objects[r.Path]
	if !ok {
		return failure(http.StatusNotFound, r.Path+" does not exist")
	}
	if p := options.Preconditions; p != nil {
		metadata := metadataOf(object)
		if (p.UID != nil && metadata["uid"] != string(*p.UID)) ||
			(p.ResourceVersion != nil && metadata["resourceVersion"] != *p.ResourceVersion) {
			return failure(http.StatusConflict, "Precondition failed")
		}
	}
	if !r.Query.Has("dryRun") && len(options.DryRun) == 0 {
		s.end(r.Path)
	}
	return http.StatusOK, status(http.StatusOK, "", "")
}
