package source

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func status(code int) *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", "", 0, false)
}

// fakeKind is a kind whose lists and watches a test makes up.
type fakeKind struct {
	Kind
	pages   []runtime.Object
	listErr error
	away    error // what is in the way of a watch that goes on from a list
	stream  func() (watch.Interface, error)
	lists   []metav1.ListOptions
	watches []metav1.ListOptions
}

func newFakeKind() *fakeKind {
	s := &fakeKind{}
	s.list = func(_ context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
		if s.lists = append(s.lists, o); s.listErr != nil {
			return nil, s.listErr
		}
		page := s.pages[0]
		s.pages = s.pages[1:]
		return page, nil
	}
	s.watch = func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if s.watches = append(s.watches, o); o.SendInitialEvents != nil {
			return s.stream()
		}
		if s.away != nil {
			return nil, s.away
		}
		return watch.NewFake(), nil
	}
	return s
}

func page(version, next string, names ...string) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: next}}
	for _, name := range names {
		list.Items = append(list.Items, *pod(name, "1"))
	}
	return list
}

func refusal(code int) func() (watch.Interface, error) {
	return func() (watch.Interface, error) { return nil, status(code) }
}

// streaming is a watch with these events.
func streaming(happens ...watch.Event) (*watch.FakeWatcher, func() (watch.Interface, error)) {
	w := watch.NewFakeWithChanSize(len(happens), false)
	for _, e := range happens {
		w.Action(e.Type, e.Object)
	}
	return w, func() (watch.Interface, error) { return w, nil }
}

// A list is streamed where the server can do that; the watch goes on from it.
func TestAListIsStreamed(t *testing.T) {
	s := newFakeKind()
	stream, opened := streaming(watch.Event{Type: watch.Added, Object: pod("a", "1")}, watch.Event{Type: watch.Bookmark, Object: end("5")})
	s.stream = opened
	version, w, err := s.Open(t.Context(), func(runtime.Object, bool) error { return nil })
	if err != nil || version != "5" || w != watch.Interface(stream) || stream.IsStopped() {
		t.Errorf("Open goes on at %q by %v, %v; want at 5 by the stream", version, w, err)
	}
	if o := s.watches[0]; !*o.SendInitialEvents || o.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan || !o.AllowWatchBookmarks || len(s.lists) != 0 {
		t.Errorf("the stream is asked for with %+v, and lists may have been made", o)
	}
}

// A server that does not stream lists is asked for pages, and from then on for those at once.
func TestAListThatIsNotStreamedIsPaged(t *testing.T) {
	_, told := streaming(watch.Event{Type: watch.Error, Object: &status(http.StatusBadRequest).ErrStatus})
	for name, stream := range map[string]func() (watch.Interface, error){
		"invalid": refusal(http.StatusUnprocessableEntity), "bad": refusal(http.StatusBadRequest), "internal": refusal(http.StatusInternalServerError), "told in the stream": told,
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeKind()
			s.stream = stream
			for round, asked := range []int{2, 1} {
				s.watches, s.lists = nil, nil
				s.pages = []runtime.Object{page("7", "more", "a", "b"), page("7", "", "c")}
				var seen []string
				version, w, err := s.Open(t.Context(), func(obj runtime.Object, gone bool) error {
					if gone {
						t.Error("an object that is listed is said to be gone")
					}
					seen = append(seen, obj.(*corev1.Pod).Name)
					return nil
				})
				if err != nil || version != "7" || w == nil || strings.Join(seen, "") != "abc" {
					t.Errorf("round %d: it goes on at %q with %v, %v", round, version, seen, err)
				}
				if len(s.watches) != asked || s.watches[asked-1].ResourceVersion != "7" {
					t.Errorf("round %d: watched was %+v", round, s.watches)
				}
				if len(s.lists) != 2 || s.lists[0].Limit != 500 || s.lists[0].Continue != "" || s.lists[1].Continue != "more" {
					t.Errorf("round %d: listed was %+v", round, s.lists)
				}
			}
		})
	}
}

// What is in the way of a list is an error, and no watch goes on.
func TestWhatIsInTheWayOfAList(t *testing.T) {
	full := errors.New("full")
	old, tooOld := streaming(watch.Event{Type: watch.Error, Object: &status(http.StatusGone).ErrStatus})
	nameless, bookmark := streaming(watch.Event{Type: watch.Bookmark, Object: &metav1.Status{}})
	refused, unseen := streaming(watch.Event{Type: watch.Added, Object: pod("a", "1")})
	for name, c := range map[string]struct {
		stream func() (watch.Interface, error)
		opened *watch.FakeWatcher
		pages  []runtime.Object
		list   error
		is     func(error) bool
	}{
		"a refusal of the stream":       {stream: refusal(http.StatusForbidden), is: Refused},
		"a version that is too old":     {stream: tooOld, opened: old, is: Expired},
		"a bookmark without a version":  {stream: bookmark, opened: nameless, is: func(err error) bool { return strings.Contains(err.Error(), "list: ") }},
		"no room for what is streamed":  {stream: unseen, opened: refused, is: func(err error) bool { return errors.Is(err, full) }},
		"a refusal of a page":           {stream: refusal(http.StatusBadRequest), list: status(http.StatusForbidden), is: Refused},
		"a page that is no list":        {stream: refusal(http.StatusBadRequest), pages: []runtime.Object{pod("a", "1")}, is: func(err error) bool { return strings.Contains(err.Error(), "list: ") }},
		"no room for what is on a page": {stream: refusal(http.StatusBadRequest), pages: []runtime.Object{page("7", "", "a")}, is: func(err error) bool { return errors.Is(err, full) }},
	} {
		s := newFakeKind()
		s.stream, s.pages, s.listErr = c.stream, c.pages, c.list
		version, w, err := s.Open(t.Context(), func(runtime.Object, bool) error { return full })
		if err == nil || !c.is(err) || version != "" || w != nil || c.opened != nil && !c.opened.IsStopped() {
			t.Errorf("%s: Open goes on at %q by %v, %v; want an error", name, version, w, err)
		}
		if paged := slices.ContainsFunc(s.lists, func(o metav1.ListOptions) bool { return o.Limit > 1 }); paged != strings.Contains(name, "page") {
			t.Errorf("%s: paged: %t", name, paged)
		}
	}
}

// A position that cannot be read is an error.
func TestAPositionThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]runtime.Object{
		"what is no list": pod("a", "1"), "a list of what has no name": &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.Status{}}}},
	} {
		s := newFakeKind()
		s.pages = []runtime.Object{answer}
		if _, found, err := s.Position(t.Context(), "ns", "a"); err == nil {
			t.Errorf("%s: %v is found", name, found)
		}
	}
}

// A list that no watch can go on from is an error.
func TestAListWithoutAWatch(t *testing.T) {
	s := newFakeKind()
	s.stream, s.pages, s.away = refusal(http.StatusBadRequest), []runtime.Object{page("7", "", "a")}, status(http.StatusGone)
	if _, w, err := s.Open(t.Context(), func(runtime.Object, bool) error { return nil }); !Expired(err) || w != nil {
		t.Errorf("a list without a watch goes on by %v, %v; want that it has expired", w, err)
	}
}
