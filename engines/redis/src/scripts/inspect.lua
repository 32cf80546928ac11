use(1, 1)
cap()
purge()
promote()
return { tostring(now), view() }
