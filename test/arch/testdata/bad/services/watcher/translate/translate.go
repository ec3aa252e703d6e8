// Package translate reads the API itself.
package translate

import _ "k8s.io/client-go/kubernetes" // want: only doors to the API server & a pure middle
