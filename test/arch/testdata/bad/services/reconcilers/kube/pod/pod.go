// Package pod reaches up.
package pod

import _ "github.com/millrace/millrace/services/reconcilers/shell" // want: as pure as they are
