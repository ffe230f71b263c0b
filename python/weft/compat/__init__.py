"""Programs written for UCX-Py or ucxx: `import weft.compat.ucp as ucp`, `import weft.compat.ucxx as ucxx`."""
