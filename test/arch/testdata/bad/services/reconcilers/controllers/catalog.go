// Package controllers is a catalogue with opinions.
package controllers

import (
	_ "github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	_ "k8s.io/api/core/v1" // want: the catalogue lists controllers
)
