// Package leasetest is an API server for tests that has Leases only. It refuses updates of another
// version than the stored one.
package leasetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Server has the Leases of one namespace.
type Server struct {
	typed.LeaseInterface // methods that no test needs

	mu      sync.Mutex
	version int
	leases  map[string]*coordinationv1.Lease
	// away makes every request fail, as long as it is set.
	away error
	// loses reports whether the answer to a write is lost; nil: none is.
	loses func() bool
}

// New makes an empty server.
func New() *Server { return &Server{leases: map[string]*coordinationv1.Lease{}} }

// Leases is the server as a client of a namespace.
func (s *Server) Leases(string) typed.LeaseInterface { return s }

// Leave makes every request fail with an error; nil ends that.
func (s *Server) Leave(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// Lose sets the function that picks the writes whose answers are lost. It is called for one write at a time.
func (s *Server) Lose(loses func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loses = loses
}

// errLost is the error of a write whose answer is lost.
var errLost = errors.New("the answer is lost")

// Get is that of a client.
func (s *Server) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[name]
	switch {
	case s.away != nil:
		return nil, s.away
	case !ok:
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return l.DeepCopy(), nil
}

// List is that of a client.
func (s *Server) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{}
	for _, l := range s.leases {
		list.Items = append(list.Items, *l.DeepCopy())
	}
	slices.SortFunc(list.Items, func(a, b coordinationv1.Lease) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return list, s.away
}

// Create is that of a client.
func (s *Server) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[l.Name]; ok && s.away == nil {
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), l.Name)
	}
	return s.put(l)
}

// Update is that of a client.
func (s *Server) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is, ok := s.leases[l.Name]; s.away == nil && (!ok || is.ResourceVersion != l.ResourceVersion) {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), l.Name, nil)
	}
	return s.put(l)
}

func (s *Server) put(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.away != nil {
		return nil, s.away
	}
	s.version++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.version)
	s.leases[l.Name] = l
	if s.loses != nil && s.loses() {
		return nil, errLost
	}
	return l.DeepCopy(), nil
}
